import torch


def soft_step(x: torch.Tensor, sharpness: float = 4.0, *, shift: float = 0.0) -> torch.Tensor:
    """A smooth step: a sigmoid of the scaled and shifted input."""
    return torch.sigmoid((x - shift) * sharpness)


##################################################################################################################################################


def test_soft_step():
    results = {}
    results["test_case_1"] = soft_step(torch.randn(64, 96, device="cuda"))
    results["test_case_2"] = soft_step(torch.randn(7, 33, device="cuda"))
    results["test_case_3"] = soft_step(torch.randn(16, device="cuda"), sharpness=2.0)
    return results


test_results = test_soft_step()
