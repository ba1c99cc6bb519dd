//! Creates or replaces objects of any kind.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::{discovered::Discovered, server::ApiServer, timeout::SERVER_TIMEOUT};
use crate::wait::eventually;

/// Maximum attempts of a write that conflicts with concurrent changes.
const MAX_ATTEMPTS: usize = 20;

impl ApiServer {
    /// Creates or replaces the object, and then its status if the kind has that subresource and the
    /// object has a status. Returns the object as stored.
    ///
    /// `uid` and `resourceVersion` of the argument are ignored. The namespace must exist.
    pub fn apply(&self, object: &Value) -> Result<Value> {
        let (kind, path) = self.find(object)?;
        let what = || format!("apply {path}");
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            match self.apply_once(&kind, &path, object).with_context(what)? {
                Ok(applied) => return Ok(applied),
                Err(conflict) => last = Some(conflict),
            }
        }
        bail!("{}: {MAX_ATTEMPTS} conflicts, the last: {last:?}", what())
    }

    /// As [`Self::apply`], for an object of a kind that may not be served yet.
    pub fn apply_when_served(&self, object: &Value) -> Result<Value> {
        eventually(SERVER_TIMEOUT, "the kind is served", || self.apply(object))
    }

    /// The inner error is a conflict with a concurrent change.
    fn apply_once(&self, kind: &Discovered, path: &str, object: &Value) -> Result<Result<Value, Value>> {
        let mut body = object.clone();
        let metadata = body["metadata"].as_object_mut().context("no metadata")?;
        metadata.retain(|key, _| key != "uid" && key != "resourceVersion");
        let collection = path.rsplit_once('/').context("no collection")?.0;
        let mut answer = self.admin().post(collection, &body)?;
        if answer.code == 409 {
            let there = self.admin().get(path)?;
            if there.code == 404 {
                return Ok(Err(answer.body));
            }
            body["metadata"]["resourceVersion"] = there.ok()?["metadata"]["resourceVersion"].take();
            answer = self.admin().put(path, &body)?;
        }
        if kind.status && object.get("status").is_some() && (200..300).contains(&answer.code) {
            let mut current = answer.ok()?;
            current["status"] = object["status"].clone();
            answer = self.admin().put(&format!("{path}/status"), &current)?;
            // Controllers write to a new object at once. Only the status is retried, so that their
            // writes stay.
            for _ in 0..MAX_ATTEMPTS {
                if answer.code != 409 {
                    break;
                }
                let mut current = self.admin().get(path)?.ok()?;
                current["status"] = object["status"].clone();
                answer = self.admin().put(&format!("{path}/status"), &current)?;
            }
        }
        match answer.code {
            409 => Ok(Err(answer.body)),
            _ => answer.ok().map(Ok),
        }
    }

    /// Reads the stored object of the same kind, namespace and name, if it exists.
    pub fn fetch(&self, object: &Value) -> Result<Option<Value>> {
        let answer = self.admin().get(&self.path_of(object)?)?;
        if answer.code == 404 {
            return Ok(None);
        }
        answer.ok().map(Some)
    }

    /// Deletes the object of the same kind, namespace and name. A missing object is not an error.
    pub fn remove(&self, object: &Value) -> Result<()> {
        let answer = self.admin().delete(&self.path_of(object)?)?;
        if answer.code != 404 {
            answer.ok()?;
        }
        Ok(())
    }

    /// Applies a JSON merge patch (as the admin) to the object of the same kind, namespace and
    /// name. Returns the object as stored.
    pub fn merge(&self, object: &Value, change: &Value) -> Result<Value> {
        let path = self.path_of(object)?;
        let answer = self.admin().patch(&path, super::MERGE_PATCH, change)?;
        answer.ok().with_context(|| format!("patch {path}"))
    }

    /// As [`ApiServer::merge`], for the status subresource, which Nodes, VMs and migrations have
    /// and VMIs do not.
    pub fn merge_status(&self, object: &Value, change: &Value) -> Result<Value> {
        let path = format!("{}/status", self.path_of(object)?);
        let answer = self.admin().patch(&path, super::MERGE_PATCH, change)?;
        answer.ok().with_context(|| format!("patch {path}"))
    }

    /// The API path of the object with this kind, namespace and name.
    pub fn path_of(&self, object: &Value) -> Result<String> {
        self.find(object).map(|(_, path)| path)
    }

    /// Creates a namespace if it does not exist.
    pub fn namespace(&self, name: &str) -> Result<()> {
        let object = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let answer = self.admin().post("/api/v1/namespaces", &object)?;
        if answer.code != 409 {
            answer.ok().with_context(|| format!("namespace {name}"))?;
        }
        Ok(())
    }

    /// Applies CustomResourceDefinitions and waits until each served version answers.
    pub fn install(&self, definitions: &[Value]) -> Result<()> {
        for definition in definitions {
            self.apply(definition)?;
        }
        for definition in definitions {
            let spec = &definition["spec"];
            let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
            let (group, plural) = (text(&spec["group"])?, text(&spec["names"]["plural"])?);
            for version in spec["versions"].as_array().context("no versions")? {
                if version["served"] != true {
                    continue;
                }
                let group_version = format!("/apis/{group}/{}", text(&version["name"])?);
                let path = format!("{group_version}/{plural}");
                eventually(SERVER_TIMEOUT, &path, || {
                    let code = self.admin().get(&format!("{path}?limit=1"))?.code;
                    ensure!(code == 200, "{code}");
                    // The API server serves the objects before it lists their kind.
                    let list = self.admin().get(&group_version)?.ok()?;
                    let mut kinds = list["resources"].as_array().into_iter().flatten();
                    ensure!(kinds.any(|kind| kind["name"] == *plural), "not in {list}");
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn find(&self, object: &Value) -> Result<(Discovered, String)> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let version = text(&object["apiVersion"]).context("an object without apiVersion")?;
        let kind = text(&object["kind"]).context("an object without kind")?;
        let found = self.discover(&version, &kind)?;
        let name = text(&object["metadata"]["name"]).context("an object without name")?;
        let path = if found.namespaced {
            let namespace = text(&object["metadata"]["namespace"])
                .with_context(|| format!("{kind} {name} has no namespace"))?;
            format!("{}/namespaces/{namespace}/{}/{name}", found.root, found.plural)
        } else {
            format!("{}/{}/{name}", found.root, found.plural)
        };
        Ok((found, path))
    }

    fn discover(&self, version: &str, kind: &str) -> Result<Discovered> {
        let key = format!("{version}/{kind}");
        let lock = || {
            self.discovered
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        };
        if let Some(known) = lock().get(&key) {
            return Ok(known.clone());
        }
        let root = match version {
            "v1" => "/api/v1".to_owned(),
            group => format!("/apis/{group}"),
        };
        let list = self.admin().get(&root)?.ok().with_context(|| root.clone())?;
        let resources = list["resources"]
            .as_array()
            .context("discovery without resources")?;
        let main = resources
            .iter()
            .find(|resource| {
                resource["kind"] == kind && !resource["name"].as_str().is_none_or(|name| name.contains('/'))
            })
            .with_context(|| format!("{root} has no kind {kind}"))?;
        let plural = main["name"]
            .as_str()
            .context("a resource without name")?
            .to_owned();
        let subresource = format!("{plural}/status");
        let found = Discovered {
            status: resources.iter().any(|resource| resource["name"] == *subresource),
            namespaced: main["namespaced"] == true,
            root,
            plural,
        };
        lock().insert(key, found.clone());
        Ok(found)
    }
}
