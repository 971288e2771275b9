"""Training: one loop for all small models, and the toy tasks that they learn."""

from labcore.train.loop import Step, batches, fit, rate_at
from labcore.train.losses import cross_entropy
from labcore.train.referent import train_referent
from labcore.train.reinforce import (
    PositionPolicy,
    exact_gradient,
    expected_reward,
    fit_reinforce,
    gradient_variance,
    others_mean,
    reinforce_loss,
    single_gradients,
)

__all__ = [
    "PositionPolicy",
    "Step",
    "batches",
    "cross_entropy",
    "exact_gradient",
    "expected_reward",
    "fit",
    "fit_reinforce",
    "gradient_variance",
    "others_mean",
    "rate_at",
    "reinforce_loss",
    "single_gradients",
    "train_referent",
]
