//! Which version and compression an endpoint supports.

use std::time::Duration;

use crate::{Compression, Protocol, Verdict, WireForm};

/// After this time with a fall-back, the preferred form is tried again: the receiver may have been
/// upgraded.
pub const REPROBE_INTERVAL: Duration = Duration::from_hours(1);

/// Shortest time between two trials of the preferred form when the endpoint was unreachable in
/// between, which may have been its upgrade.
pub const RESTART_REPROBE_INTERVAL: Duration = Duration::from_mins(1);

/// Version that the settings ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ProtocolSetting {
    /// 2.0, and 1.0 if the receiver does not support it.
    #[default]
    Auto,
    /// Always 1.0.
    V1,
    /// Always 2.0.
    V2,
}

/// Compression that the settings ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompressionSetting {
    /// Snappy with 2.0, which requires it. With 1.0 zstd, and Snappy if the receiver refuses it.
    #[default]
    Auto,
    /// Always Snappy.
    Snappy,
    /// Always zstd, and therefore 1.0.
    Zstd,
}

/// Checks whether the two settings agree.
///
/// # Errors
/// For 2.0 with zstd: the specification of 2.0 has Snappy only.
pub fn check_settings(
    protocol: ProtocolSetting,
    compression: CompressionSetting,
) -> Result<(), &'static str> {
    if protocol == ProtocolSetting::V2 && compression == CompressionSetting::Zstd {
        return Err("remote write 2.0 allows no compression but snappy; use protocol 1.0 for zstd");
    }
    Ok(())
}

/// What is known of an endpoint. The caller passes the time, counted from any fixed point.
#[derive(Debug, Clone)]
pub struct Negotiation {
    protocol: ProtocolSetting,
    compression: CompressionSetting,
    form: WireForm,
    /// The endpoint has accepted [`Self::form`].
    proven: bool,
    /// A status of 400 led to the current form, so it may have been about the samples.
    doubtful: bool,
    /// The endpoint was unreachable or failed since the last trial of the preferred form.
    disrupted: bool,
    /// When the preferred form was tried last.
    tried: Duration,
    /// Until then a status of 400 is about the samples: no other form was accepted either.
    trusted_until: Duration,
}

impl Negotiation {
    /// Starts with the preferred form of the settings. Settings that [`check_settings`] refuses are
    /// those of 2.0 with Snappy.
    pub fn new(protocol: ProtocolSetting, compression: CompressionSetting) -> Self {
        Self {
            protocol,
            compression,
            form: preferred(protocol, compression),
            proven: false,
            doubtful: false,
            disrupted: false,
            tried: Duration::ZERO,
            trusted_until: Duration::ZERO,
        }
    }

    /// The form of the next request, and whether the endpoint's support of it is unknown.
    pub fn next(&mut self, now: Duration) -> (WireForm, bool) {
        let preferred = preferred(self.protocol, self.compression);
        let interval = if self.disrupted {
            RESTART_REPROBE_INTERVAL
        } else {
            REPROBE_INTERVAL
        };
        if self.form != preferred && self.proven && now >= self.tried.saturating_add(interval) {
            self.form = preferred;
            self.proven = false;
            self.doubtful = false;
        }
        if self.form == preferred && !self.proven {
            self.tried = now;
            self.disrupted = false;
        }
        let alternative = match self.form.protocol {
            Protocol::V2 => self.protocol == ProtocolSetting::Auto,
            Protocol::V1 => {
                self.form.compression == Compression::Zstd && self.compression == CompressionSetting::Auto
            }
        };
        let unproven = !self.proven && alternative && now >= self.trusted_until;
        (self.form, unproven)
    }

    /// The form in use, for people.
    pub fn form(&self) -> WireForm {
        self.form
    }

    /// Whether the endpoint has accepted the form in use.
    pub fn proven(&self) -> bool {
        self.proven
    }

    /// Takes note of an answer with this status to a request of the form that [`Self::next`] chose.
    /// Returns the verdict that counts: a form that the settings exclude is refused instead.
    pub fn answered(&mut self, now: Duration, status: u16, samples: u32, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Delivered { .. } => {
                self.proven = true;
                self.doubtful = false;
            }
            Verdict::UseProtocol(protocol) => return self.use_protocol(protocol, status, samples),
            Verdict::UseCompression(compression) => return self.use_compression(compression, samples),
            Verdict::Refused { .. } => {
                if self.doubtful && !self.proven {
                    // Both were refused, so it was about the samples.
                    self.form = preferred(self.protocol, self.compression);
                    self.doubtful = false;
                    self.trusted_until = now.saturating_add(RESTART_REPROBE_INTERVAL);
                }
            }
            Verdict::Retry { .. } => self.disrupted = true,
        }
        verdict
    }

    /// Takes note that the endpoint gave no answer.
    pub fn unreachable(&mut self) {
        self.disrupted = true;
    }

    fn use_protocol(&mut self, protocol: Protocol, status: u16, samples: u32) -> Verdict {
        if self.protocol != ProtocolSetting::Auto {
            return unsupported(samples);
        }
        self.doubtful = status == 400;
        // After a status of 400 with the least that a receiver of 1.0 must support: one request
        // decides.
        let compression = match self.compression {
            CompressionSetting::Auto if !self.doubtful => Compression::Zstd,
            CompressionSetting::Zstd => Compression::Zstd,
            CompressionSetting::Auto | CompressionSetting::Snappy => Compression::Snappy,
        };
        self.form = WireForm {
            protocol,
            compression,
        };
        self.proven = false;
        Verdict::UseProtocol(protocol)
    }

    fn use_compression(&mut self, compression: Compression, samples: u32) -> Verdict {
        if self.compression != CompressionSetting::Auto {
            return unsupported(samples);
        }
        self.form.compression = compression;
        self.proven = false;
        Verdict::UseCompression(compression)
    }
}

fn unsupported(samples: u32) -> Verdict {
    Verdict::Refused {
        reason: crate::RefusedReason::Unsupported,
        samples,
    }
}

fn preferred(protocol: ProtocolSetting, compression: CompressionSetting) -> WireForm {
    let version = match (protocol, compression) {
        (ProtocolSetting::V1, _) | (ProtocolSetting::Auto, CompressionSetting::Zstd) => Protocol::V1,
        (ProtocolSetting::Auto | ProtocolSetting::V2, _) => Protocol::V2,
    };
    let compression = match (version, compression) {
        (Protocol::V1, CompressionSetting::Auto | CompressionSetting::Zstd) => Compression::Zstd,
        (Protocol::V2, _) | (Protocol::V1, CompressionSetting::Snappy) => Compression::Snappy,
    };
    WireForm {
        protocol: version,
        compression,
    }
}

#[cfg(test)]
#[path = "negotiation_tests.rs"]
mod tests;
