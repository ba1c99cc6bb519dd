//! Paths of the delivery itself.

use crate::WANTED;

/// Paths of the certificate, its key and the clients' authority.
pub(crate) const TLS_PATHS: [&str; 3] = [
    "/etc/virtfleet/tls/agent.crt",
    "/etc/virtfleet/tls/agent.key",
    "/etc/virtfleet/tls/ca.crt",
];

/// Path of the clients' authority.
pub const TLS_CA_PATH: &str = TLS_PATHS[2];

/// Path of the settings.
pub const SETTINGS: &str = "/etc/virtfleet/agent.d/50-delivery.yaml";

/// Path of the script.
pub(super) const DELIVER: &str = "/var/lib/virtfleet/delivery/deliver";

/// Permission bits of the script: only root may read it, because the files in it may be secret.
pub(super) const DELIVER_MODE: u32 = 0o700;

/// Other paths that only the delivery writes.
pub(crate) const OWN: [&str; 9] = [
    SETTINGS,
    DELIVER,
    WANTED,
    crate::INSTALLED,
    "/etc/systemd/system/virtfleet-delivery.service",
    "/etc/systemd/system/kubelet.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/containerd.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/setup.service.d/20-virtfleet-delivery.conf",
    "/etc/systemd/system/multi-user.target.d/20-virtfleet-delivery.conf",
];
