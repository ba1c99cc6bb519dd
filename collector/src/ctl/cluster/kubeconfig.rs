//! Finds and loads the kubeconfig, as kubectl does: `--kubeconfig`, else the files of `KUBECONFIG`,
//! else `~/.kube/config`. Programs and token files that it names work.

use std::{
    env,
    path::{Path, PathBuf},
};

use kube::{
    Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::ctl::{cli::ConnectionArgs, fail::Fail};

/// The cluster of the kubeconfig; none without a kubeconfig, or if it has no current context.
pub(in crate::ctl) fn find(connection: &ConnectionArgs) -> Result<Option<Config>, Fail> {
    let files = match &connection.kubeconfig {
        Some(file) => vec![file.clone()],
        None => default_files(env::var_os("KUBECONFIG"), env::home_dir())?,
    };
    if files.is_empty() {
        return Ok(None);
    }
    load(&files, connection)
}

/// The files that exist. Kubectl, too, ignores missing ones of several.
fn default_files(variable: Option<std::ffi::OsString>, home: Option<PathBuf>) -> Result<Vec<PathBuf>, Fail> {
    let is_file = |file: &PathBuf| file.is_file();
    let named = variable.as_deref().map(env::split_paths).into_iter().flatten();
    let named: Vec<PathBuf> = named.filter(|file| !file.as_os_str().is_empty()).collect();
    if named.is_empty() {
        let default = home.map(|home| home.join(".kube/config"));
        return Ok(default.into_iter().filter(is_file).collect());
    }
    let there: Vec<PathBuf> = named.iter().filter(|file| is_file(file)).cloned().collect();
    if there.is_empty() {
        let missing: Vec<_> = named.iter().map(|file| file.display().to_string()).collect();
        let message = format!(
            "KUBECONFIG names no file that exists: {}; correct it, or set --server",
            missing.join(", ")
        );
        return Err(Fail::Usage(message));
    }
    Ok(there)
}

fn load(files: &[PathBuf], connection: &ConnectionArgs) -> Result<Option<Config>, Fail> {
    let failed = |error: &dyn std::fmt::Display| {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        Fail::Usage(format!(
            "the kubeconfig {} cannot be used: {error}",
            names.join(", ")
        ))
    };
    let read = |file: &Path| Kubeconfig::read_from(file);
    let mut merged = Kubeconfig::default();
    for file in files {
        merged = read(file)
            .and_then(|next| merged.merge(next))
            .map_err(|error| failed(&error))?;
    }
    let has_context = merged
        .current_context
        .as_deref()
        .is_some_and(|name| !name.is_empty());
    if !has_context && connection.context.is_none() {
        return match connection.cluster_flag() {
            None => Ok(None),
            Some(_) => Err(failed(&"it has no current context; set --context")),
        };
    }
    let options = KubeConfigOptions {
        context: connection.context.clone(),
        ..KubeConfigOptions::default()
    };
    // Fails only if a provider is already installed.
    rustls::crypto::ring::default_provider().install_default().ok();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Fail::Start(error.to_string()))?;
    let config = runtime.block_on(Config::from_custom_kubeconfig(merged, &options));
    let mut config = config.map_err(|error| failed(&error))?;
    config.connect_timeout = Some(connection.timeout.0);
    // An error is reported at once. A watch repeats its requests itself.
    config.default_retry = false;
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;

    use super::*;
    use crate::ctl::cli::Cli;

    const KUBECONFIG: &str = "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
        clusters: [{name: c, cluster: {server: 'https://127.0.0.1:1'}}, {name: d, cluster: {server: 'https://127.0.0.1:2'}}]\n\
        contexts: [{name: one, context: {cluster: c, user: u, namespace: team-a}}, {name: two, context: {cluster: d, user: u}}]\n\
        users: [{name: u, user: {token: t}}]\n";

    fn connection(args: &[&str]) -> ConnectionArgs {
        Cli::try_parse_from(["virtfleetctl", "vms"].iter().chain(args))
            .unwrap()
            .connection
    }

    #[test]
    fn files_are_found_as_kubectl_finds_them() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let find = |variable: Option<&str>| {
            default_files(variable.map(Into::into), Some(folder.path().to_owned()))
                .map_err(|fail| fail.to_string())
        };
        assert_eq!(find(None).unwrap(), [""; 0].map(PathBuf::from), "no file");
        fs::create_dir(path(".kube")).unwrap();
        fs::write(path(".kube/config"), "").unwrap();
        fs::write(path("a"), "").unwrap();
        for (variable, expected) in [
            (None, ".kube/config"),
            (Some(""), ".kube/config"),
            (Some(":"), ".kube/config"),
        ] {
            assert_eq!(find(variable).unwrap(), [path(expected)]);
        }
        let both = format!("{}:{}", path("missing").display(), path("a").display());
        assert_eq!(find(Some(&both)).unwrap(), [path("a")]);
        let error = find(Some("/no/such/file")).unwrap_err();
        assert!(
            error.contains("/no/such/file") && error.contains("--server"),
            "{error}"
        );
    }

    #[test]
    fn the_context_chooses_the_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("config");
        let load = |text: &str, args: &[&str]| {
            fs::write(&file, text).unwrap();
            load(std::slice::from_ref(&file), &connection(args)).map_err(|fail| fail.to_string())
        };
        let config = load(KUBECONFIG, &[]).unwrap().unwrap();
        assert_eq!(
            (config.cluster_url.port_u16(), config.default_namespace.as_str()),
            (Some(1), "team-a")
        );
        let config = load(KUBECONFIG, &["--context", "two"]).unwrap().unwrap();
        assert_eq!(config.cluster_url.port_u16(), Some(2));
        let without = KUBECONFIG.replace("current-context: one\n", "");
        assert!(
            load(&without, &[]).unwrap().is_none(),
            "not a cluster of the user's choice"
        );
        assert!(load(&without, &["--context", "two"]).unwrap().is_some());
        let error = load(&without, &["--via", "port-forward"]).unwrap_err();
        assert!(error.contains("--context"), "{error}");
        for (text, args) in [("[", &[][..]), (KUBECONFIG, &["--context", "none"])] {
            let error = load(text, args).unwrap_err();
            assert!(error.contains("cannot be used"), "{error}");
        }
    }
}
