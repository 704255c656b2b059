import torch


def spread(values: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The largest value minus the smallest along a dimension."""
    return torch.amax(values, dim=dim) - torch.amin(values, dim=dim)


##################################################################################################################################################


def test_spread():
    results = {}
    for rows in (48, 5):
        results[f"rows_{rows}"] = spread(torch.rand(rows, 130, device="cuda"), dim=1)
    return results


test_results = test_spread()
