//! Rights of users; service accounts.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::{server::ApiServer, timeout::SERVER_TIMEOUT, user::User};
use crate::wait::eventually;

const GROUP: &str = "rbac.authorization.k8s.io";

impl ApiServer {
    /// Grants a user these rules (as in a Role: `[{"apiGroups": [""], "resources": ["nodes"],
    /// "verbs": ["get"]}]`), in one namespace, or cluster-wide. A second grant with the same `name`
    /// replaces the first.
    pub fn grant(&self, name: &str, user: &User, namespace: Option<&str>, rules: &Value) -> Result<()> {
        let kind = if namespace.is_some() {
            "Role"
        } else {
            "ClusterRole"
        };
        let object = |kind: &str| {
            let mut object = json!({
                "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": { "name": name },
            });
            if let Some(namespace) = namespace {
                object["metadata"]["namespace"] = namespace.into();
            }
            object
        };
        let mut role = object(kind);
        role["rules"] = rules.clone();
        self.apply(&role)?;
        let mut binding = object(&format!("{kind}Binding"));
        binding["roleRef"] = json!({ "apiGroup": GROUP, "kind": kind, "name": name });
        binding["subjects"] = json!([{ "apiGroup": GROUP, "kind": "User", "name": user.name }]);
        self.apply(&binding)?;
        Ok(())
    }

    /// Revokes a grant. The server applies this within moments.
    pub fn revoke(&self, name: &str, namespace: Option<&str>) -> Result<()> {
        let kind = if namespace.is_some() {
            "RoleBinding"
        } else {
            "ClusterRoleBinding"
        };
        let mut object = json!({
            "apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": { "name": name },
        });
        if let Some(namespace) = namespace {
            object["metadata"]["namespace"] = namespace.into();
        }
        self.remove(&object)
    }

    /// Waits until all earlier changes of roles and bindings are effective. The API server receives
    /// the changes of each kind by a watch, in order: with the rights of a new user, all earlier
    /// ones are effective.
    pub fn until_rights_apply(&self) -> Result<()> {
        const NAMESPACE: &str = "default";
        const PATH: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let user = User::new(&format!("marker-{:016x}", fastrand::u64(..)), &[])?;
        self.namespace(NAMESPACE)?;
        for (namespace, resource) in [(None, "nodes"), (Some(NAMESPACE), "pods")] {
            let rules = json!([{ "apiGroups": [""], "resources": [resource], "verbs": ["get"] }]);
            self.grant(&user.name, &user, namespace, &rules)?;
            let review = json!({
                "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
                "spec": { "user": user.name, "resourceAttributes": {
                    "namespace": namespace, "verb": "get", "resource": resource,
                } },
            });
            eventually(SERVER_TIMEOUT, "the rights of a new user", || {
                let answer = self.admin().post(PATH, &review)?.ok()?;
                ensure!(answer["status"]["allowed"] == true, "{}", answer["status"]);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Creates a token of a service account, and the account if it does not exist. Tokens become
    /// invalid within ten seconds after the account is deleted
    /// ([`ApiServer::delete_service_account`]), even if it is created again.
    pub fn service_account(&self, namespace: &str, name: &str) -> Result<User> {
        let account = account(namespace, name);
        if self.fetch(&account)?.is_none() {
            self.apply(&account)?;
        }
        let request = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": { "expirationSeconds": 86400 },
        });
        let path = format!("{}/token", self.path_of(&account)?);
        let answer = self
            .admin()
            .post(&path, &request)?
            .ok()
            .with_context(|| path.clone())?;
        let token = answer["status"]["token"].as_str().context("no token")?;
        Ok(User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: Vec::new(),
            token: token.to_owned(),
        })
    }

    /// Deletes a service account, which invalidates all its tokens.
    pub fn delete_service_account(&self, namespace: &str, name: &str) -> Result<()> {
        self.remove(&account(namespace, name))
    }
}

fn account(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "namespace": namespace, "name": name },
    })
}
