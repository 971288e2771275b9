"""Training: one loop for all small models, and the toy tasks that they learn."""

from labcore.train.loop import Step, batches, fit, rate_at
from labcore.train.losses import cross_entropy
from labcore.train.referent import train_referent

__all__ = ["Step", "batches", "cross_entropy", "fit", "rate_at", "train_referent"]
