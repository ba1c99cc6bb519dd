//! The only place that touches the guest.
//!
//! The scrape path reads through [`Reread`] (files that stay open) and [`slurp`]; everything that is read once reads through
//! [`read_bounded`] and its siblings, which never wait in `open`.

mod addresses;
mod atomic_file;
mod bounded;
mod btrfs_calls;
mod clock;
mod clock_calls;
mod command;
pub mod dbus;
mod disk_busy;
mod disk_directory;
mod disk_health;
mod disk_identifiers;
mod disk_journal;
mod disk_observe;
mod disk_owner;
mod disk_seed;
pub mod disks;
pub mod dns;
mod durable;
mod ethtool;
mod kernel;
mod lock;
mod memory;
mod mount_probe;
mod network_calls;
mod nic_calls;
mod nic_link;
mod ports;
mod reread;
mod resolve;
mod roots;
mod service;
mod service_calls;
mod stamped;
mod state_file;
mod sweep;
mod sysfs;
mod tasks;
pub mod virtio;
mod witness;

pub use addresses::{AddressesError, Held, held_addresses};
pub use atomic_file::{WriteError, write_atomic};
pub use bounded::{ReadError, is_mask, list, read_bounded, read_device, read_text};
pub use btrfs_calls::{BtrfsDevice, BtrfsFilesystem, btrfs_devices};
pub use clock::{clock, clock_sample, is_root};
pub use clock_calls::{ClockCalls, ClockState};
#[cfg(test)]
#[allow(unused_imports, reason = "for the tests of whoever runs commands")]
pub(crate) use command::fake::FakeCommands;
pub use command::{CommandError, Commands, Done, SystemCommands, Tool, find_program, own_program};
pub use disk_busy::{busy_below, entries_in};
pub use disk_directory::{
    DirectoryError, DirectoryState, directory_state, make_afresh, rename_directory, stranger_in,
};
pub use disk_health::{Asked, DiskHealth};
pub use disk_identifiers::{identified, references};
pub use disk_journal::{AUDIT_FILE, JOURNAL_DIRECTORY, JournalError, JournalStore, UNDO_DIRECTORY};
pub use disk_observe::{
    MountsError, UNITS, bad_key, disk_files, disk_mounts, disk_unit_file_there, mount_point, node_number,
    owner_of, swapped,
};
pub use disk_owner::{OwnError, make_folder, make_private_folder, own, owner_number};
pub use disk_seed::{SeedError, Seeded, compare_trees, copy_tree, stamp_of};
pub use durable::{link_atomic, remove_durably};
pub use ethtool::{Driver, LinkModes};
pub use kernel::{FsSpace, Kernel, Machine, Statfs, Uname};
pub use lock::{Holder, Lock, LockError, lock_waiting, lock_within};
pub use memory::give_back;
pub use mount_probe::{MountProbe, Outcome, Target};
pub use network_calls::{Ethtool, NetworkCalls, NetworkError, TcpSockets};
pub use nic_calls::{NicCalls, QueueCounters, nic_calls};
pub use nic_link::{Link, Traffic, link, pause, schedule, softirq, steer, traffic};
pub use ports::{Port, try_port};
pub use reread::{Folder, Reread, RereadError, slurp};
pub use roots::Roots;
pub use service::{Change, Service, Services, Systemctl};
pub use service_calls::{BUS_SOCKET, Reach, ServiceCalls};
pub use stamped::Stamped;
pub use state_file::{AGENT_GROUP, write_for_agent};
pub use sweep::sweep_temporary_files;
pub use sysfs::{
    Attribute, AttributeBuffer, Device, Devices, attribute_buffer, attribute_names, attribute_once,
    directory_names,
};
pub use tasks::{TaskError, Tasks};
pub use witness::{Unwatched, Witness};
