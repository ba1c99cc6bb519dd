//! The items for machines, from the flags and the files that they name.

use std::{
    fs,
    path::{Component, Path},
};

use virtfleet_delivery::{
    osc::{AgentImage, AgentItems},
    payload::{self, Outside, TLS_CA_PATH},
    spec::{self, Checked, Platform},
};
use virtfleet_wire::layered::Problem;

use super::args::GardenerArgs;
use crate::{ca::parse_authorities, delivered_settings};

/// Reads and validates what machines get.
///
/// # Errors
/// All problems, each with the flag, or with file and line.
pub fn load(args: &GardenerArgs) -> Result<AgentItems, Vec<String>> {
    let image =
        AgentImage::new(&args.image, &args.path).map_err(|why| vec![format!("--agent.image: {why}")])?;
    let file = args.delivery.display().to_string();
    let text = fs::read_to_string(&args.delivery).map_err(|error| {
        vec![format!(
            "cannot read {file}: {error}; name the file with --delivery"
        )]
    })?;
    let checked = spec::read(&file, &text).map_err(|found| texts(&found))?;
    let refused = refused(&checked);
    if !refused.is_empty() {
        return Err(texts(&refused));
    }
    let folder = args.delivery.parent().unwrap_or(Path::new("."));
    let mut outside = Outside {
        read: &mut |name| read(folder, name),
        sha256: &mut |_| Err("the binary comes from --agent.image".to_owned()),
        fleet_ca: &mut || {
            let why =
                "set tls.clientCA to a PEM file beside this one, with the text of /api/v1/ca/clients.pem";
            Err(why.to_owned())
        },
    };
    let payload = payload::build(&checked, &mut outside).map_err(|found| texts(&found))?;
    if let Some(authority) = payload.files.iter().find(|file| file.path == TLS_CA_PATH) {
        parse_authorities("tls.clientCA", &authority.content).map_err(|error| vec![error.to_string()])?;
    }
    delivered_settings::check(&checked, &payload, false).map_err(|found| texts(&found))?;
    Ok(AgentItems::new(&payload, &image))
}

/// Keys of a Delivery that have no meaning here, or that all machines of a pool must not share.
fn refused(checked: &Checked) -> Vec<Problem> {
    let delivery = &checked.delivery;
    let mut problems = Vec::new();
    let mut say = |path: &str, message: &str| {
        problems.push(Problem::at(&checked.origins.of(path), path, message.to_owned()));
    };
    if delivery.agent.is_some() {
        say("agent", "remove it: machines get the binary from --agent.image");
    }
    if delivery.platform != Platform::Kubevirt {
        say(
            "platform",
            "remove it: machines of Gardener are those of KubeVirt",
        );
    }
    if delivery.tls.as_ref().is_some_and(|tls| !tls.enrolment) {
        let message = "set enrolment: true; all machines of a pool would share this certificate, and everybody who \
                       may read OperatingSystemConfigs its key";
        say("tls", message);
    }
    problems
}

fn texts(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

/// The content of a file beside the Delivery.
fn read(folder: &Path, name: &str) -> Result<Vec<u8>, String> {
    let mut parts = Path::new(name).components();
    let (Some(Component::Normal(name)), None) = (parts.next(), parts.next()) else {
        return Err("name a file in the same folder".to_owned());
    };
    fs::read(folder.join(name)).map_err(|error| error.to_string())
}
