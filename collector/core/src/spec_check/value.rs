//! Values and paths of checks, formatted only where they are shown.

use std::{fmt, net::IpAddr};

use virtfleet_wire::ids::MacAddr;

use crate::vmi_spec::CpuTopology;

/// A value of a VMI or of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecValue<'a> {
    Number(u64),
    Bytes(u64),
    Text(&'a str),
    Flag(bool),
    Topology(CpuTopology),
    Mac(MacAddr),
    Addresses(&'a [IpAddr]),
    Words(&'a [Box<str>]),
}

const MIB: u64 = 1 << 20;

impl fmt::Display for SpecValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Bytes(bytes) if *bytes < MIB => write!(f, "{bytes} B"),
            Self::Bytes(bytes) => write!(f, "{} MiB", bytes / MIB),
            Self::Text(text) => f.write_str(text),
            Self::Flag(flag) => write!(f, "{flag}"),
            Self::Topology(one) => write!(
                f,
                "sockets {}, cores {}, threads {}",
                one.sockets, one.cores, one.threads
            ),
            Self::Mac(mac) => write!(f, "{mac}"),
            Self::Addresses(all) => joined(f, all),
            Self::Words(all) => joined(f, all),
        }
    }
}

fn joined(f: &mut fmt::Formatter<'_>, all: &[impl fmt::Display]) -> fmt::Result {
    if all.is_empty() {
        return f.write_str("none");
    }
    for (index, one) in all.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{one}")?;
    }
    Ok(())
}

/// Path of a field in a VMI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpecPath<'a> {
    Field(&'static str),
    /// A field of a named item of a list: list, name, field; the field may be empty.
    Item(&'static str, &'a str, &'static str),
}

impl fmt::Display for SpecPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(path) => f.write_str(path),
            Self::Item(list, name, "") => write!(f, "{list}[{name}]"),
            Self::Item(list, name, field) => write!(f, "{list}[{name}].{field}"),
        }
    }
}
