//! dhclient's leases: `dhclient.leases(5)`, for IPv4 and IPv6.

use super::{Lease, words};
use crate::dns::seen::Given;

/// Returns what each interface was assigned. The last lease of an interface counts, IPv4 before
/// IPv6; interfaces are in the order of their first lease.
pub fn dhclient_leases(text: &str) -> Vec<(String, Given)> {
    let mut found: Vec<(String, bool, Given)> = Vec::new();
    let mut block: Option<(Lease, String, bool)> = None;
    let mut depth = 0u32;
    for statement in statements(text) {
        match statement {
            Part::Open(head) => {
                if depth == 0 && matches!(head.as_str(), "lease" | "lease6") {
                    block = Some((Lease::default(), String::new(), head == "lease6"));
                }
                depth = depth.saturating_add(1);
            }
            Part::Close => {
                depth = depth.saturating_sub(1);
                if depth == 0
                    && let Some((lease, interface, six)) = block.take()
                    && !interface.is_empty()
                {
                    let given = lease.given();
                    match found.iter_mut().find(|one| one.0 == interface && one.1 == six) {
                        Some(before) => before.2 = given,
                        None => found.push((interface, six, given)),
                    }
                }
            }
            Part::Statement(line) => {
                if let Some((lease, interface, _)) = &mut block {
                    read(&line, lease, interface);
                }
            }
        }
    }
    found.sort_by_key(|one| one.1);
    found
        .into_iter()
        .map(|(interface, _, given)| (interface, given))
        .collect()
}

fn read(line: &str, lease: &mut Lease, interface: &mut String) {
    let line = line.trim();
    let (key, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if key == "interface" {
        *interface = words(rest).pop().unwrap_or_default();
        return;
    }
    if key != "option" {
        return;
    }
    let rest = rest.trim();
    let (name, value) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    match name {
        "domain-name-servers" | "dhcp6.name-servers" => lease.servers = words(value),
        "domain-name" => lease.domain = words(&super::unquote(value.trim())),
        "domain-search" | "dhcp6.domain-search" => lease.searches = words(value),
        "interface-mtu" => lease.set_mtu(value.trim()),
        _ => {}
    }
}

enum Part {
    /// Text before a `{`.
    Open(String),
    Close,
    /// Text before a `;`.
    Statement(String),
}

/// Splits the text like dhclient: at braces and semicolons outside of quotes; `#` outside of quotes
/// begins a comment.
fn statements(text: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut word = String::new();
    let (mut quoted, mut comment) = (false, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' if comment => comment = false,
            _ if comment => {}
            '\\' if quoted => {
                word.push(letter);
                word.extend(letters.next());
            }
            '"' => {
                quoted = !quoted;
                word.push(letter);
            }
            '#' if !quoted => comment = true,
            '{' if !quoted => parts.push(Part::Open(std::mem::take(&mut word).trim().to_owned())),
            '}' if !quoted => {
                word.clear();
                parts.push(Part::Close);
            }
            ';' if !quoted => parts.push(Part::Statement(std::mem::take(&mut word))),
            _ => word.push(letter),
        }
    }
    parts
}
