//! Files of the guest: bounded reads, atomic writes, locks, sysfs attributes.

pub(crate) mod atomic_file;
pub(crate) mod bounded;
pub(crate) mod content;
pub(crate) mod durable;
pub mod image;
pub(crate) mod lock;
pub(crate) mod private;
pub(crate) mod probe;
pub(crate) mod reread;
pub(crate) mod resolve;
pub(crate) mod roots;
pub(crate) mod stamped;
pub(crate) mod state_file;
pub(crate) mod sweep;
pub(crate) mod sysfs;
pub(crate) mod value;
