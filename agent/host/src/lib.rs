//! Effects on the guest: the agent's only crate that opens files, runs commands, makes system
//! calls, and communicates over netlink, D-Bus and DNS. Decisions are made in
//! `virtfleet-agent-core`, the only other crate of the agent that this one depends on.
//!
//! The scrape path reads through [`Reread`] (files that stay open) and [`read_once`]. Other files
//! are read with [`read_bounded`] and its siblings, which never block in `open`.

mod command;
mod dial;
pub mod disks;
pub mod dns;
mod files;
mod nic;
mod proc;
mod requests;
mod services;
pub mod virtio;

#[cfg(any(test, feature = "fakes"))]
pub use command::fake::FakeCommands;
pub use command::{
    CommandError, CommandOutput, Commands, SystemCommands, Tool, find_program, outlive::outlive, own_program,
};
pub use dial::{DialError, dial};
pub use disks::{
    btrfs_calls::{BtrfsDevice, BtrfsFilesystem, btrfs_devices},
    busy::{busy_below, entries_in},
    directory::{
        DirectoryError, DirectoryState, directory_state, recreate_directory, rename_directory,
        unexpected_entry,
    },
    fail_point::{FailPoints, NoFailPoints},
    health::{Asked, DiskHealth},
    identifiers::{identified, references},
    journal::{AUDIT_FILE, JOURNAL_DIRECTORY, JournalError, JournalStore, UNDO_DIRECTORY},
    mount_probe::{MountProbe, MountTarget, StatfsOutcome},
    observe::{
        MountsError, UNITS, bad_key, btrfs_members, disk_files, disk_mounts, disk_unit_file_there,
        mount_point, node_number, owner_of, swapped,
    },
    owner::{OwnError, make_folder, make_private_folder, own, owner_number},
    seed::{SeedError, Seeded, compare_trees, copy_tree, stamp_of},
};
pub use files::{
    atomic_file::{WriteError, write_atomic},
    bounded::{ReadError, is_mask, list, read_bounded, read_device, read_text},
    content::{has_content, is_plain, is_same_file, link_target, read_whole},
    durable::{link_atomic, remove_durably},
    image,
    lock::{Holder, Lock, LockError, lock_waiting, lock_within},
    private::make_private_directory,
    probe::{
        exists, is_directory, is_present, link_name, modified_seconds, read_directory, real_path, require,
        try_exists,
    },
    reread::{Folder, Reread, RereadError, read_once},
    roots::Roots,
    stamped::Stamped,
    state_file::{AGENT_GROUP, write_for_agent},
    sweep::{sweep_directory, sweep_temporary_files},
    sysfs::{Attribute, AttributeBuffer, Device, Devices, attribute_buffer, attribute_names, attribute_once},
    value::{read_line, read_value, value_once},
};
pub use nic::{
    addresses::{AddressesError, InterfaceAddresses, interface_addresses},
    ethtool::{Driver, LinkModes},
    link::{Link, Traffic, link, pause, schedule, softirq, steer, traffic},
    network_calls::{Ethtool, NetworkCalls, NetworkError, TcpSockets},
    nic_calls::{NicCalls, QueueCounters, nic_calls},
    ports::{Port, has_listener, listener_owners, try_port},
};
pub use nix::errno::Errno;
pub use proc::{
    clock::{clock, clock_sample, is_root},
    clock_calls::{ClockCalls, ClockState},
    kernel::{FsSpace, Kernel, MachineCalls, Statfs, Uname, page_size},
    memory::release_memory,
    passed_sockets::passed_sockets,
    processor::first_processor,
    tasks::{TaskError, Tasks},
};
pub use requests::{
    REQUEST_DIRECTORY, RequestError, Requester, TakenRequests, request_reconcile, take_requests,
    withdraw_request,
};
pub use services::{
    bus_calls::{BUS_SOCKET, ServiceCalls, SocketState},
    dbus,
    service::{Change, Service, Services, Systemctl},
};
