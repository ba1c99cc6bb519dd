//! Logic of the collectors `guest_*`: CPU steal, remounts, newer kernels.

pub mod health;
pub mod kernels;
pub mod remounts;
pub mod steal;
