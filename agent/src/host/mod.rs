//! The only place that touches the guest.

mod roots;

pub use roots::Roots;
