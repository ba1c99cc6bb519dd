//! NFS procedures by version in node_exporter's terms, in the order of `/proc/net/rpc`, and the
//! parser of the counters.

use std::path::Path;

use virtfleet_agent_core::procfs::{ParseError, rpc::Line};

use crate::CollectError;

/// Version 2.
pub(super) const V2: [&str; 18] = [
    "Null", "GetAttr", "SetAttr", "Root", "Lookup", "ReadLink", "Read", "WrCache", "Write", "Create",
    "Remove", "Rename", "Link", "SymLink", "MkDir", "RmDir", "ReadDir", "FsStat",
];

/// Version 3.
pub(super) const V3: [&str; 22] = [
    "Null",
    "GetAttr",
    "SetAttr",
    "Lookup",
    "Access",
    "ReadLink",
    "Read",
    "Write",
    "Create",
    "MkDir",
    "SymLink",
    "MkNod",
    "Remove",
    "RmDir",
    "Rename",
    "Link",
    "ReadDir",
    "ReadDirPlus",
    "FsStat",
    "FsInfo",
    "PathConf",
    "Commit",
];

/// Version 4, client.
pub(super) const CLIENT4: [&str; 59] = [
    "Null",
    "Read",
    "Write",
    "Commit",
    "Open",
    "OpenConfirm",
    "OpenNoattr",
    "OpenDowngrade",
    "Close",
    "Setattr",
    "FsInfo",
    "Renew",
    "SetClientID",
    "SetClientIDConfirm",
    "Lock",
    "Lockt",
    "Locku",
    "Access",
    "Getattr",
    "Lookup",
    "LookupRoot",
    "Remove",
    "Rename",
    "Link",
    "Symlink",
    "Create",
    "Pathconf",
    "StatFs",
    "ReadLink",
    "ReadDir",
    "ServerCaps",
    "DelegReturn",
    "GetACL",
    "SetACL",
    "FsLocations",
    "ReleaseLockowner",
    "Secinfo",
    "FsidPresent",
    "ExchangeID",
    "CreateSession",
    "DestroySession",
    "Sequence",
    "GetLeaseTime",
    "ReclaimComplete",
    "GetDeviceInfo",
    "LayoutGet",
    "LayoutCommit",
    "LayoutReturn",
    "SecinfoNoName",
    "TestStateID",
    "FreeStateID",
    "GetDeviceList",
    "BindConnToSession",
    "DestroyClientID",
    "Seek",
    "Allocate",
    "DeAllocate",
    "LayoutStats",
    "Clone",
];

/// Version 4, server: operations by number. node_exporter omits those without a name here.
pub(super) const SERVER4: [&str; 40] = [
    "",
    "",
    "",
    "Access",
    "Close",
    "Commit",
    "Create",
    "DelegPurge",
    "DelegReturn",
    "GetAttr",
    "GetFH",
    "Link",
    "Lock",
    "Lockt",
    "Locku",
    "Lookup",
    "LookupRoot",
    "Nverify",
    "Open",
    "OpenAttr",
    "OpenConfirm",
    "OpenDgrd",
    "PutFH",
    "",
    "",
    "Read",
    "ReadDir",
    "ReadLink",
    "Remove",
    "Rename",
    "Renew",
    "RestoreFH",
    "SaveFH",
    "SecInfo",
    "SetAttr",
    "SetClientID",
    "SetClientIDConfirm",
    "Verify",
    "Write",
    "RelLockOwner",
];

/// The lines of a file.
pub(super) struct Counts<'text>(Vec<Line<'text>>);

impl<'text> Counts<'text> {
    /// # Errors
    /// A line is malformed, or the file is empty. The other lines are not used then: a line that is
    /// missing counts as 0.
    pub(super) fn read(
        lines: impl Iterator<Item = Result<Line<'text>, ParseError>>,
        path: &Path,
    ) -> Result<Self, CollectError> {
        let lines: Vec<_> = lines
            .collect::<Result<_, _>>()
            .map_err(CollectError::parse(path))?;
        if lines.is_empty() {
            return Err(CollectError::failed(format!("{} is empty", path.display())));
        }
        Ok(Self(lines))
    }

    /// A counter. 0 if this kernel lacks the line or procedure, as in node_exporter: then it was
    /// never used.
    pub(super) fn of(&self, line: &str, index: usize) -> f64 {
        let line = self.0.iter().find(|found| found.name == line);
        let value = line.and_then(|line| line.values.get(index));
        value.copied().unwrap_or_default() as f64
    }
}
