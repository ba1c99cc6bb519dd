//! Checks each TLS file that the settings name: alone, then together with the files that belong to
//! it.

use std::{error::Error, fs};

use virtfleet_runtime::tls::{Usage, Validity, check_chain, check_pem};

use super::{FileError, agents, server};
use crate::{config::CollectorConfig, doctor::CheckResult};

/// A certificate whose remaining validity is shorter causes a warning, in seconds: 14 days, as in
/// the agent's doctor.
const EXPIRY_WARNING: u64 = 14 * 86_400;

/// One result for each TLS file that the settings name, and one for files that do not match. `now`
/// is in seconds since 1970.
pub fn check(config: &CollectorConfig, now: u64) -> Vec<CheckResult> {
    let (tls, scrape) = (&config.server.tls, &config.scrape.tls);
    let of_server = [
        ("server.tls.certificate", &tls.certificate),
        ("server.tls.key", &tls.key),
        ("server.tls.clientCA", &tls.client_ca),
    ];
    let of_agents = [
        ("scrape.tls.certificate", &scrape.certificate),
        ("scrape.tls.key", &scrape.key),
        ("scrape.tls.ca", &scrape.ca),
    ];
    let (mut results, readable) = files(&of_server, now);
    if readable {
        results.extend(server(&config.server).err().map(|error| mismatch(&error)));
    }
    let (others, readable) = files(&of_agents, now);
    results.extend(others);
    if readable {
        let mismatch = agents(scrape).err().map(|error| mismatch(&error));
        let matches = mismatch.is_none();
        results.extend(mismatch);
        if let (true, Some(certificate), Some(ca)) = (matches, &scrape.certificate, &scrape.ca) {
            results.extend(chain(certificate, ca, now));
        }
    }
    results
}

/// A result for each file, and whether all could be read.
fn files(named: &[(&'static str, &Option<String>)], now: u64) -> (Vec<CheckResult>, bool) {
    let mut readable = true;
    let set = named
        .iter()
        .filter_map(|(key, file)| Some((*key, file.as_deref()?)));
    let results = set.map(|(key, file)| {
        let content = content(key, file);
        readable &= content.is_ok();
        file_result(key, file, content, now)
    });
    (results.collect(), readable)
}

/// The validity of the certificates (none for a key), or why the file cannot be used.
fn content(key: &str, file: &str) -> Result<Option<Validity>, String> {
    let pem = fs::read(file).map_err(|error| format!("cannot be read: {error}"))?;
    check_pem(&pem, matches!(key, "server.tls.key" | "scrape.tls.key"))
}

/// A result for a PEM file: a private key, or certificates, whose validity is checked.
pub(crate) fn pem_file(key: &str, file: &str, is_key: bool, now: u64) -> CheckResult {
    let pem = fs::read(file).map_err(|error| format!("cannot be read: {error}"));
    file_result(key, file, pem.and_then(|pem| check_pem(&pem, is_key)), now)
}

fn file_result(key: &str, file: &str, content: Result<Option<Validity>, String>, now: u64) -> CheckResult {
    match content {
        Err(reason) => CheckResult::fail(key, format!("{file} {reason}"), format!("ls -l {file}")),
        Ok(None) => CheckResult::ok(key, format!("{file}: readable")),
        Ok(Some(valid)) => validity_result(key, file, valid, now),
    }
}

fn validity_result(key: &str, file: &str, valid: Validity, now: u64) -> CheckResult {
    let dates = format!("openssl x509 -in {file} -noout -subject -dates");
    if now < valid.not_before {
        let days = (valid.not_before - now) / 86_400;
        return CheckResult::fail(key, format!("{file} is not valid yet, for {days} d more"), dates);
    }
    if now > valid.not_after {
        let days = (now - valid.not_after) / 86_400;
        return CheckResult::fail(key, format!("{file} expired {days} d ago"), dates);
    }
    let left = valid.not_after - now;
    let detail = format!("{file}: {} d left", left / 86_400);
    if left < EXPIRY_WARNING {
        CheckResult::warn(key, detail, dates)
    } else {
        CheckResult::ok(key, detail)
    }
}

/// The result for files that `serve` cannot load together.
fn mismatch(error: &FileError) -> CheckResult {
    let mut reason = error.file.display().to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        reason = format!("{reason}: {next}");
        cause = next.source();
    }
    let next = "openssl x509 -in CERTIFICATE -noout -pubkey | diff - <(openssl pkey -in KEY -pubout)";
    CheckResult::fail(
        &error.key,
        format!("does not match the other files: {reason}"),
        next,
    )
}

/// Agents verify the collector with their own `server.tls.clientCA`, usually the authority that
/// also signed the agents' certificates.
fn chain(certificate: &str, ca: &str, now: u64) -> Option<CheckResult> {
    let (chain, authorities) = (fs::read(certificate).ok()?, fs::read(ca).ok()?);
    let reason = check_chain(&chain, &authorities, Usage::Client, now).err()?;
    Some(CheckResult::warn(
        "scrape.tls.certificate",
        format!("{certificate} {reason} ({ca}); agents accept it only if their server.tls.clientCA does"),
        format!("openssl verify -purpose sslclient -CAfile {ca} {certificate}"),
    ))
}
