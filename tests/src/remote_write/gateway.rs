//! nginx set up as the MLA gateway of a KKP user cluster is: TLS 1.3, a mandatory client
//! certificate, the tenant's header set by the gateway, one exact location.

use std::{fs, net::SocketAddr};

use anyhow::{Context as _, Result};
use rcgen::ExtendedKeyUsagePurpose;
use tempfile::TempDir;

use crate::{
    pki::{Authority, TRUST_DOMAIN},
    ports,
    process::{Launch, Process},
    scratch,
    stage::STAGE_TIMEOUT,
};

/// The gateway of one user cluster.
pub struct MlaGateway {
    // In drop order: the process first, then its files.
    _process: Process,
    _folder: TempDir,
    /// Where it listens.
    pub address: SocketAddr,
    /// The DNS name in its certificate.
    pub host: String,
    /// Its authority, which also signs the certificates of its clients.
    pub authority: Authority,
}

impl MlaGateway {
    /// Starts the gateway of `tenant`. It passes requests on to `upstream` in that tenant's name.
    pub fn start(tenant: &str, upstream: SocketAddr) -> Result<Self> {
        let folder = scratch::marked().context("a folder for the gateway")?;
        let path = folder.path();
        let host = format!("mla-gateway.{tenant}.example");
        let authority = Authority::new("mla-gateway-ca")?;
        let uri = format!("spiffe://{TRUST_DOMAIN}/mla-gateway");
        let server = authority.issue(
            "mla-gateway",
            &uri,
            &[host.as_str()],
            ExtendedKeyUsagePurpose::ServerAuth,
        )?;
        fs::write(path.join("ca.pem"), authority.pem())?;
        fs::write(path.join("tls.crt"), server.certificate_pem())?;
        fs::write(path.join("tls.key"), server.key_pem())?;
        let address = ports::free()?;
        let own = path.display();
        let config = format!(
            "daemon off; master_process off; worker_processes 1; pid {own}/nginx.pid; error_log stderr warn;
             events {{ worker_connections 64; }}
             http {{
               access_log off;
               client_body_temp_path {own}/body; proxy_temp_path {own}/proxy; fastcgi_temp_path {own}/f;
               uwsgi_temp_path {own}/u; scgi_temp_path {own}/s;
               server {{
                 listen {address} ssl;
                 ssl_protocols TLSv1.3;
                 ssl_certificate {own}/tls.crt; ssl_certificate_key {own}/tls.key;
                 ssl_client_certificate {own}/ca.pem; ssl_verify_client on;
                 proxy_set_header X-Scope-OrgID {tenant};
                 location = /api/v1/push {{ proxy_pass http://{upstream}/api/v1/push; }}
                 location / {{ return 404; }}
               }}
             }}\n"
        );
        let file = path.join("nginx.conf");
        fs::write(&file, config)?;
        let mut process = Launch::new("nginx")
            .arg("-p")
            .arg(path)
            .arg("-c")
            .arg(&file)
            .arg("-e")
            .arg("stderr")
            .start(path)?;
        process.wait_for_port(address, STAGE_TIMEOUT)?;
        Ok(Self {
            _process: process,
            _folder: folder,
            address,
            host,
            authority,
        })
    }
}
