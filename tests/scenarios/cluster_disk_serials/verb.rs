//! `virtfleetctl disks set-serials`.

use std::{env, fs, path::Path};

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use virtfleet_tests::{
    bins,
    cluster::{ApiServer, Fault, MERGE_PATCH, Proxy, User, kubevirt, live::WAIT_TIMEOUT},
    parts,
    process::Launch,
    skip, wait,
};

use super::objects::{CLUSTER_NAME, DISKS, NAMESPACE, cases, disk, of_kkp, serials, vm};

struct SerialStage {
    server: ApiServer,
    folder: TempDir,
}

impl SerialStage {
    fn new(schemas: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let reader = User::new("reader", &[]).unwrap();
        let server = ApiServer::start_with(folder.path(), std::slice::from_ref(&reader)).unwrap();
        server.namespace(NAMESPACE).unwrap();
        kubevirt::install_release(&server, schemas).unwrap();
        let rules = json!([{
            "apiGroups": ["kubevirt.io"], "resources": ["virtualmachines"], "verbs": ["get", "list"],
        }]);
        server.grant("reader", &reader, None, &rules).unwrap();
        for (name, text) in [
            ("admin", server.kubeconfig(server.admin_user())),
            ("reader", server.kubeconfig(&reader)),
        ] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self { server, folder }
    }

    fn path(name: &str) -> String {
        format!("/apis/kubevirt.io/v1/namespaces/{NAMESPACE}/virtualmachines/{name}")
    }

    fn get(&self, name: &str) -> Value {
        self.server.admin().get(&Self::path(name)).unwrap().ok().unwrap()
    }

    /// All VMs, with their resource versions.
    fn all(&self) -> Value {
        let list = self.server.admin().get(&Self::path("")).unwrap().ok().unwrap();
        list["items"].clone()
    }

    fn launch(&self, kubeconfig: &str, arguments: &[&str]) -> Launch {
        Launch::new(bins::ctl().unwrap())
            .args(["disks", "set-serials"])
            .args(arguments)
            .arg("--kubeconfig")
            .arg(self.folder.path().join(kubeconfig))
    }

    /// Exit code and both streams.
    fn run(&self, kubeconfig: &str, arguments: &[&str]) -> (i32, String) {
        self.launch(kubeconfig, arguments).said(WAIT_TIMEOUT * 3).unwrap()
    }

    /// Compares the output with `tests/fixtures/disk-serials`; `UPDATE_GOLDEN=1` writes it.
    fn says(&self, golden: &str, arguments: &[&str]) {
        let (code, text) = self.run("admin", arguments);
        assert_eq!(code, 0, "{text}");
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("fixtures/disk-serials")
            .join(format!("{golden}.txt"));
        if env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &text).unwrap();
        }
        assert_eq!(text, fs::read_to_string(&file).unwrap(), "{}", file.display());
    }

    /// Exactly the disks' serials change, and only once.
    fn the_verb_sets_what_the_policy_would(&self) {
        for (vm, _) in cases() {
            self.server.apply(&vm).unwrap();
        }
        let before = self.all();
        self.says("dry-run", &["-n", NAMESPACE]);
        assert_eq!(self.all(), before, "without --yes nothing changes");
        let (code, text) = self.run("admin", &["--yes"]);
        assert_eq!(code, 2, "all VMs only on request: {text}");

        self.says("set", &["-n", NAMESPACE, "--yes"]);
        let mut after = self.all();
        for (vm, expected) in cases() {
            let name = vm["metadata"]["name"].as_str().unwrap();
            assert_eq!(serials(&self.get(name)), expected, "{name}");
        }
        let mut versions = Vec::new();
        for (index, vm) in after.as_array_mut().unwrap().iter_mut().enumerate() {
            versions.push(vm["metadata"]["resourceVersion"].clone());
            let (old, name) = (&before[index], vm["metadata"]["name"].clone());
            if name == "pet" {
                assert_eq!(vm, old, "not a node of a user cluster");
            }
            *vm.pointer_mut(DISKS).unwrap() = old.pointer(DISKS).unwrap().clone();
            for field in ["resourceVersion", "generation", "managedFields"] {
                vm["metadata"][field] = old["metadata"][field].clone();
            }
            assert_eq!(vm, old, "only serials change");
        }
        let (code, text) = self.run("admin", &["-A", "-y"]);
        assert!(code == 0 && text.contains("nothing was changed"), "{text}");
        let now: Vec<Value> = self
            .all()
            .as_array()
            .unwrap()
            .iter()
            .map(|vm| vm["metadata"]["resourceVersion"].clone())
            .collect();
        assert_eq!(now, versions, "a second run changes nothing");
    }

    /// A named VM needs no label; what is named wrong does not stop the others.
    fn named_vms_are_changed_whatever_their_labels(&self) {
        let vmi = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "namespace": NAMESPACE, "name": "alone" },
            "spec": { "domain": { "devices": {} } },
        });
        self.server.apply(&vmi).unwrap();
        let pet = format!("{NAMESPACE}/pet");
        let (code, text) = self.run("admin", &["alone", &pet, "pet", "-o", "json", "--yes"]);
        assert_eq!(code, 1, "{text}");
        for word in [
            "error: alone: there is no VirtualMachine with this name",
            "3 serials of 1 VM set.",
            "\"serial\": \"secondarydisk0\"",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        let expected = ["datavolumedisk", "", "secondarydisk0", "secondarydisk1"];
        assert_eq!(serials(&self.get("pet")), expected);
    }

    /// Filters, and a caller who may only read.
    fn filters_select_and_errors_name_what_is_missing(&self) {
        for name in ["f-1", "f-2"] {
            self.server.apply(&vm(name, CLUSTER_NAME, &of_kkp(name))).unwrap();
        }
        let label = json!({ "metadata": { "labels": { CLUSTER_NAME: "blue" } } });
        let path = Self::path("f-1");
        self.server
            .admin()
            .patch(&path, MERGE_PATCH, &label)
            .unwrap()
            .ok()
            .unwrap();
        let (code, text) = self.run("reader", &["--cluster", "blue", "--yes"]);
        assert_eq!(code, 1, "{text}");
        for word in ["failed", "f-1", "cannot patch", "use a kubeconfig that may patch"] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains("f-2"), "{text}");
        let (code, text) = self.run("admin", &["-A", "--cluster", "blue", "--yes"]);
        assert!(code == 0 && text.contains("3 serials of 1 VM set."), "{text}");
        assert_eq!(serials(&self.get("f-2")), [""; 4]);
        let selector = format!("{CLUSTER_NAME} notin (blue)");
        let (code, text) = self.run("admin", &["-l", &selector, "--yes"]);
        assert!(code == 0 && text.contains("3 serials of 1 VM set."), "{text}");
    }

    /// While the patch is on its way, somebody inserts a disk in front and sets a serial.
    fn a_concurrent_change_is_not_overwritten(&self) {
        let race = vm("race", CLUSTER_NAME, &of_kkp("race"));
        let made = self.server.apply(&race).unwrap();
        let proxy = Proxy::start(&self.server).unwrap();
        let kubeconfig = proxy.kubeconfig(self.server.admin_user());
        fs::write(self.folder.path().join("proxy"), kubeconfig).unwrap();
        proxy.set(&[("virtualmachines/race", Fault::Hold)]);
        let mark = self.server.audit_mark().unwrap();
        let logs = self.folder.path().join("logs");
        fs::create_dir(&logs).unwrap();
        let mut verb = self
            .launch("proxy", &["-n", NAMESPACE, "--yes"])
            .start(&logs)
            .unwrap();
        verb.wait_for(WAIT_TIMEOUT, "the list", |_| {
            let entries = self.server.audit_since(mark)?;
            let listed = |verb: &str, resource: &str| verb == "list" && resource == "virtualmachines";
            let found = entries.iter().find(|entry| listed(&entry.verb, &entry.resource));
            found.map(|_| ()).context("no list yet")
        })
        .unwrap();
        let mut changed = made;
        let (front, volume) = disk("front", "emptyDisk");
        let disks = changed.pointer_mut(DISKS).unwrap().as_array_mut().unwrap();
        disks[2]["serial"] = "mine".into();
        disks.insert(0, front);
        let volumes = changed.pointer_mut("/spec/template/spec/volumes").unwrap();
        volumes.as_array_mut().unwrap().push(volume);
        let path = Self::path("race");
        self.server.admin().put(&path, &changed).unwrap().ok().unwrap();
        proxy.set(&[]);
        wait::eventually(WAIT_TIMEOUT, "the verb ends", || {
            ensure!(verb.ended()?.is_some(), "it runs");
            Ok(())
        })
        .unwrap();
        let said = verb.log();
        assert!(said.contains("3 serials of 1 VM set."), "{said}");
        let expected = ["front", "datavolumedisk", "", "mine", "secondarydisk1"];
        assert_eq!(serials(&self.get("race")), expected, "{said}");
        let patches = self.server.audit_since(mark).unwrap();
        let patches = patches.iter().filter(|entry| entry.verb == "patch");
        let codes: Vec<u16> = patches.map(|entry| entry.code).collect();
        assert_eq!(codes, [422, 200], "refused, read and planned again: {said}");
    }
}

#[test]
fn virtfleetctl_gives_existing_disks_serials_tier3() {
    let test = "virtfleetctl_gives_existing_disks_serials_tier3";
    let needs = || {
        parts::kube_control_plane()?;
        parts::kubevirt()
    };
    let Some(folder) = skip::need(3, test, needs()).unwrap() else {
        return;
    };
    let stage = SerialStage::new(&folder.join("schemas/1.9"));
    stage.the_verb_sets_what_the_policy_would();
    stage.named_vms_are_changed_whatever_their_labels();
    stage.filters_select_and_errors_name_what_is_missing();
    stage.a_concurrent_change_is_not_overwritten();
}
