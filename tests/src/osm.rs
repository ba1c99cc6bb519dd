//! What Kubermatic's operating-system-manager makes of a profile for cloud-init, for profiles whose
//! contents have no template but `{{ "{{" }}` (`pkg/generator/generator.go`, `cloudInitTemplate`).

use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use virtfleet_wire::layered::parse_yaml;

/// The escaped form of `{{` in a template.
const ESCAPED_MARK: &str = "{{ \"{{\" }}";

/// A configuration of a profile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// User-data of the VM.
    Bootstrap,
    /// What the bootstrap script runs cloud-init with.
    Provisioning,
}

/// The cloud-config of a profile's part. `more` are further files: path and content.
pub fn cloud_config(profile: &str, part: Part, more: &[(&str, &str)]) -> Result<String> {
    let document = parse_yaml(profile)?.pop().context("an empty profile")?.to_json();
    let part = match part {
        Part::Bootstrap => &document["spec"]["bootstrapConfig"],
        Part::Provisioning => &document["spec"]["provisioningConfig"],
    };
    let mut text = "#cloud-config\n\nssh_pwauth: false\n\nssh_authorized_keys:\n\nwrite_files:\n".to_owned();
    for file in part["files"].as_array().into_iter().flatten() {
        let field = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let inline = &file["content"]["inline"];
        let data = template(&field(&inline["data"]))?;
        let encoding = field(&inline["encoding"]);
        let content = match encoding.as_str() {
            "b64" => STANDARD.encode(data),
            // Passed on as it is.
            "gz+b64" => data,
            _ => bail!("another encoding: {inline}"),
        };
        let permissions = file["permissions"].as_u64().unwrap_or(644);
        put(&mut text, &field(&file["path"]), permissions, &encoding, &content);
    }
    for (path, content) in more {
        put(&mut text, path, 600, "b64", &STANDARD.encode(content));
    }
    let commands = part["modules"]["runcmd"].as_array().into_iter().flatten();
    for (index, command) in commands.filter_map(Value::as_str).enumerate() {
        if index == 0 {
            text.push_str("\nruncmd:\n");
        }
        writeln!(text, "- {command}")?;
    }
    Ok(text)
}

fn put(text: &mut String, path: &str, permissions: u64, encoding: &str, content: &str) {
    // Writing to a string cannot fail.
    write!(
        text,
        "- path: '{path}'\n  permissions: '0{permissions}'\n  encoding: '{encoding}'\n  content: |-\n    {content}\n\n"
    )
    .ok();
}

/// A content after its execution as a template.
fn template(data: &str) -> Result<String> {
    let parts: Vec<&str> = data.split(ESCAPED_MARK).collect();
    ensure!(
        parts.iter().all(|part| !part.contains("{{")),
        "a template: {data}"
    );
    Ok(parts.join("{{"))
}
