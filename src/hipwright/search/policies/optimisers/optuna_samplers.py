"""Optuna's samplers as reference arms: the tree-structured Parzen estimator and NSGA-II (Akiba et al., KDD 2019).

The study is made anew from the run's trials for each question, so that the policy stays a function of the view. A
choice is a categorical parameter over the values seen; the objective is the log time, with a penalty for what did not
pass.
"""

from __future__ import annotations

import warnings
from typing import Any

from hipwright.search.policies.optimisers.known_space import KnownSpace, OptimiserPolicy


class OptunaSampler:
    """An Optimiser. name: a class of optuna.samplers."""

    def __init__(self, name: str, **settings: Any) -> None:
        self._name, self._settings = name, settings

    def asked(self, space: KnownSpace, count: int, seed: int) -> list[dict[str, Any]]:
        """Candidates of a study with the run's trials."""
        import optuna
        from optuna.distributions import BaseDistribution, CategoricalDistribution

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        categories: dict[str, BaseDistribution] = {
            key: CategoricalDistribution(list(map(repr, values))) for key, values in space.values.items()
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = getattr(optuna.samplers, self._name)(seed=seed, **self._settings)
        study = optuna.create_study(sampler=sampler)
        for trial, value in space.rows:
            known = {key: repr(trial.proposed.choices[key]) for key in space.values if key in trial.proposed.choices}
            kinds = {key: categories[key] for key in known}
            study.add_trial(optuna.trial.create_trial(params=known, distributions=kinds, value=value))
        meant = {key: {repr(value): value for value in values} for key, values in space.values.items()}
        answers = [study.ask(categories).params for _ in range(count)]
        return [{key: meant[key][text] for key, text in answer.items()} for answer in answers]


class OptunaTpe(OptimiserPolicy):
    """No settings."""

    package = "optuna"
    optimiser = OptunaSampler("TPESampler", n_startup_trials=1)


class OptunaNsga(OptimiserPolicy):
    """No settings."""

    package = "optuna"
    optimiser = OptunaSampler("NSGAIISampler", population_size=8)
