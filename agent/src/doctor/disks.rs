//! The declared disks: a line each, with the next command to type.

use virtfleet_agent_core::disks::state::{DiskState, Standing};

use super::{Line, Seen, Status};

pub(super) fn disks(seen: &Seen) -> Vec<Line> {
    let declared = &seen.settings.config.disks;
    if declared.is_empty() {
        return Vec::new();
    }
    let state = match &seen.disks {
        Ok(state) => state,
        Err(reason) => {
            return vec![Line {
                status: Status::Warn,
                what: "disks".to_owned(),
                detail: reason.clone(),
                next: "sudo virtfleet-agent plan disks".to_owned(),
            }];
        }
    };
    let mut lines = Vec::new();
    lines.extend(state.error.as_ref().map(|error| Line {
        status: Status::Fail,
        what: "disks".to_owned(),
        detail: error.clone(),
        next: "sudo virtfleet-agent plan disks".to_owned(),
    }));
    lines.extend(declared.iter().map(|declared| {
        let what = format!("disk {}", declared.name);
        match state.disks.iter().find(|disk| disk.name == declared.name) {
            Some(disk) => one(what, disk),
            None => Line {
                status: Status::Warn,
                what,
                detail: "declared since the last pass".to_owned(),
                next: "sudo virtfleet-agent apply disks".to_owned(),
            },
        }
    }));
    lines
}

fn one(what: String, disk: &DiskState) -> Line {
    let status = match disk.standing {
        Standing::Ready => Status::Ok,
        // It may be plugged in later.
        Standing::Missing | Standing::Pending if !disk.required => Status::Warn,
        _ => Status::Fail,
    };
    let place = if disk.mount_point.is_empty() {
        disk.filesystem.clone()
    } else {
        format!("{} at {}", disk.filesystem, disk.mount_point)
    };
    let detail = match (disk.standing, disk.reason()) {
        (Standing::Ready, reason) if reason.is_empty() => format!("{}: {place}", disk.device),
        (Standing::Ready, reason) => format!("{}: {place}; {reason}", disk.device),
        (standing, reason) => format!("{}: {reason}", standing.word()),
    };
    Line {
        status,
        what,
        detail,
        next: disk.next(),
    }
}
