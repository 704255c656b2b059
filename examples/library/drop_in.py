"""A module in memory, its drop-in with a verified program, and what was measured: python examples/library/drop_in.py"""

import torch

import hipwright

on_gpu = torch.cuda.is_available()
width = 4096 if on_gpu else 64
model = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)).eval()
x = torch.randn(width, width)
if on_gpu:
    model, x = model.cuda(), x.cuda()

result = hipwright.optimize(model, (x,), budget=4 if on_gpu else 1)
with torch.no_grad():
    difference = (result.module(x) - model(x)).abs().max().item()
calls = result.module.program_calls
print(f"verified: {result.passed}, calls of the program: {calls}, largest difference: {difference:.1e}")
for name, target in result.evaluation.targets.items():
    for baseline, versus in (target.timing.versus if target.timing else {}).items():
        low, high = versus.interval
        print(f"{name}, {target.timing.device}: {versus.speedup:.2f} times {baseline} [{low:.2f}, {high:.2f}]")
print("not measured:", *result.not_measured or ["nothing"], sep="\n  ")
