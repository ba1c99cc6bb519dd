//! The operator's stream: its settings are in the collector's, its credentials in files.

use std::{fs, path::Path, sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use super::{
    Sections, StreamDefaults, StreamName, StreamRegistry, StreamSettings,
    registry::DigestParts,
    resolve::{Credentials, StreamSpec, Unusable, basic, bearer, endpoint, with_endpoint, without_endpoint},
    tls::Pem,
};
use crate::config::{FleetStreamSettings, MlaSettings};

/// Interval at which the files are read again.
const RELOAD_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum size of a file in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// Path of the stream's settings.
const PREFIX: &str = "mla.fleet.";

/// The files of the operator's stream: key in the settings, path, and content or the error.
pub(crate) struct FleetFiles(Vec<FleetFile>);

struct FleetFile {
    key: String,
    path: String,
    content: Result<Zeroizing<Vec<u8>>, String>,
}

/// Reads all files that `mla.fleet` names. Blocking.
pub(crate) fn read_files(fleet: &FleetStreamSettings) -> FleetFiles {
    let remote_write = &fleet.remote_write;
    let (tls, auth) = (&remote_write.tls, &remote_write.auth);
    let single = [
        ("tls.ca", &tls.ca),
        ("tls.certificate", &tls.certificate),
        ("tls.key", &tls.key),
        ("auth.passwordFile", &auth.password_file),
        ("auth.tokenFile", &auth.token_file),
    ];
    let single = single
        .into_iter()
        .filter_map(|(key, path)| Some((format!("{PREFIX}remoteWrite.{key}"), path.clone()?)));
    let headers = remote_write.headers.iter().enumerate();
    let headers = headers.filter_map(|(at, header)| {
        let key = format!("{PREFIX}remoteWrite.headers[{at}].file");
        Some((key, header.file.clone()?))
    });
    let read = single.chain(headers).map(|(key, path)| FleetFile {
        content: read(Path::new(&path)),
        key,
        path,
    });
    FleetFiles(read.collect())
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, String> {
    let about = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let size = fs::metadata(path).map_err(about)?.len();
    if size > MAX_FILE_BYTES {
        return Err(format!(
            "{} has {size} bytes; at most {MAX_FILE_BYTES} are read",
            path.display()
        ));
    }
    let content = fs::read(path).map(Zeroizing::new).map_err(about)?;
    if content.trim_ascii().is_empty() {
        return Err(format!("{} is empty", path.display()));
    }
    Ok(content)
}

impl FleetFiles {
    /// Key and path of each file, and why it cannot be read.
    pub(crate) fn states(&self) -> impl Iterator<Item = (&str, &str, Option<&str>)> {
        self.0.iter().map(|file| {
            let why = file.content.as_ref().err().map(String::as_str);
            (file.key.as_str(), file.path.as_str(), why)
        })
    }

    fn get(&self, key: &str) -> Result<Option<(&str, &[u8])>, String> {
        let key = format!("{PREFIX}remoteWrite.{key}");
        match self.0.iter().find(|file| file.key == key) {
            None => Ok(None),
            Some(file) => match &file.content {
                Ok(content) => Ok(Some((&file.path, content))),
                Err(why) => Err(format!("{key}: {why}")),
            },
        }
    }

    fn digest(&self) -> [u8; 32] {
        let mut parts = DigestParts::new();
        for file in &self.0 {
            parts.add(file.key.as_bytes());
            match &file.content {
                Ok(content) => parts.add(content),
                Err(why) => parts.add(why.as_bytes()),
            }
        }
        parts.finish()
    }
}

/// The settings of the operator's stream at `now`, in seconds since 1970.
fn resolve(
    fleet: &FleetStreamSettings,
    files: &FleetFiles,
    defaults: &StreamDefaults,
    now: u64,
) -> Result<StreamSettings, Unusable> {
    let stream = StreamSpec {
        sections: Sections::of_fleet(fleet),
        suspend: false,
        guests: fleet.guests,
    };
    let settings = without_endpoint(&stream, PREFIX, defaults)?;
    let endpoint = credentials(fleet, files).and_then(|found| endpoint(&stream, &found, now));
    with_endpoint(settings, endpoint.map_err(|why| ("InvalidCredentials", why)))
}

fn credentials<'a>(fleet: &'a FleetStreamSettings, files: &'a FleetFiles) -> Result<Credentials<'a>, String> {
    let remote_write = &fleet.remote_write;
    let mut found = Credentials {
        pem: Pem {
            authorities: files.get("tls.ca")?,
            certificate: files.get("tls.certificate")?,
            key: files.get("tls.key")?,
        },
        ..Credentials::default()
    };
    for (at, header) in remote_write.headers.iter().enumerate() {
        let from_file = files.get(&format!("headers[{at}].file"))?;
        let value = header.value.as_ref().map(String::as_bytes);
        let value = value
            .or(from_file.map(|(_, content)| content))
            .unwrap_or_default();
        found
            .headers
            .push((header.name.as_str(), Zeroizing::new(value.to_vec())));
    }
    let content = |key| Ok::<_, String>(files.get(key)?.map(|(_, content)| content.trim_ascii_end()));
    let (username, password) = (&remote_write.auth.username, content("auth.passwordFile")?);
    found.authorization = match (content("auth.tokenFile")?, username, password) {
        (Some(token), ..) => Some(bearer(token)),
        (None, Some(username), Some(password)) => Some(basic(username.as_bytes(), password)),
        _ => None,
    };
    Ok(found)
}

/// Why the operator's stream cannot be used at `now`, in seconds since 1970; none if it can.
/// Blocking.
pub(crate) fn check_fleet(
    fleet: &FleetStreamSettings,
    files: &FleetFiles,
    defaults: &StreamDefaults,
    now: u64,
) -> Option<String> {
    resolve(fleet, files, defaults, now).err().map(|why| why.message)
}

/// Resolves the operator's stream, and again whenever the section `mla` or its files change, until
/// `stop`.
pub async fn follow_fleet(
    section: watch::Receiver<Option<Arc<MlaSettings>>>,
    registry: Arc<StreamRegistry>,
    clock: fn() -> u64,
    stop: CancellationToken,
) {
    let mut ticks = interval(RELOAD_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // They change with the section, after it.
    let mut defaults = registry.defaults_changes();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
            changed = defaults.changed() => {
                if changed.is_err() {
                    return;
                }
            }
        }
        let mla = section.borrow().clone();
        let Some(mla) = mla.filter(|mla| mla.fleet.is_some()) else {
            registry.remove(&StreamName::Fleet);
            continue;
        };
        let named = Arc::clone(&mla);
        let read = move || named.fleet.as_ref().map(read_files);
        if let Ok(Some(files)) = tokio::task::spawn_blocking(read).await
            && let Some(fleet) = &mla.fleet
        {
            set_fleet(&registry, fleet, &files, clock());
        }
    }
}

/// Sets the operator's stream to what its files hold at `now`, in seconds since 1970.
pub(super) fn set_fleet(
    registry: &StreamRegistry,
    fleet: &FleetStreamSettings,
    files: &FleetFiles,
    now: u64,
) {
    let Some(defaults) = registry.defaults() else {
        return;
    };
    let mut input = DigestParts::new();
    input.add(serde_json::to_string(fleet).unwrap_or_default().as_bytes());
    input.add(format!("{defaults:?}").as_bytes());
    input.add(&files.digest());
    registry.set(StreamName::Fleet, input.finish(), || {
        resolve(fleet, files, &defaults, now)
    });
}
