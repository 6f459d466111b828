//! The host's listeners: which there are, and what they speak.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use gswarm_host::{Host, PlainFrom, TcpAcceptor, TlsAcceptor};
use gswarm_tls::{Authority, KeyFile, Names, ServerCertificate, server_config};
use gswarm_types::{Clock as _, Micros};
use tokio::net::TcpListener;

use crate::clock::SystemClock;
use crate::paths;
use crate::plan::HostPlan;

/// Time between looks at the host's own certificate.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A clock that was set back by more than this makes a new certificate.
const LOOK_BACK: Micros = Micros::from_secs(600);

/// Every port of the plan. A host that others reach at one address answers its own machine as well.
pub(super) async fn bind(plan: &HostPlan) -> anyhow::Result<Vec<TcpListener>> {
    let mut listeners = Vec::with_capacity(plan.ports.len());
    for port in &plan.ports {
        let wanted = SocketAddr::new(plan.listen, *port);
        let listener = TcpListener::bind(wanted)
            .await
            .with_context(|| format!("cannot listen on {wanted}"))?;
        listeners.push(listener);
    }
    if !plan.listen.is_loopback() && !plan.listen.is_unspecified() {
        let ports: Vec<u16> = listeners
            .iter()
            .map(|listener| listener.local_addr().map(|address| address.port()))
            .collect::<Result<_, _>>()?;
        for port in ports {
            let own = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port);
            let listener =
                TcpListener::bind(own).await.with_context(|| format!("cannot listen on {own}"))?;
            listeners.push(listener);
        }
    }
    Ok(listeners)
}

/// Plain text where the user insists, TLS everywhere else; this machine may speak either.
pub(super) fn serve(
    host: &Host,
    plan: &HostPlan,
    listeners: Vec<TcpListener>,
    authority: Arc<Authority>,
) -> anyhow::Result<()> {
    if plan.access.insecure {
        for listener in listeners {
            host.serve(TcpAcceptor::new(listener));
        }
        return Ok(());
    }
    let life = plan.access.certificate_life;
    let names = own_names(plan.listen);
    let key = KeyFile::generate()?;
    let issued = authority.issue_host(&key, &names, SystemClock.wall(), life)?;
    let certificate = Arc::new(ServerCertificate::new(&key, &issued.certificate)?);
    let config = Arc::new(server_config(Arc::clone(&certificate), authority.certificate())?);
    for listener in listeners {
        let plain = PlainFrom { legacy: plan.legacy_from.clone() };
        host.serve(TlsAcceptor::new(listener, Arc::clone(&config), plain));
    }
    host.beside(async move {
        let mut made = SystemClock.wall();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // By the clock on the wall, which may have been wrong at the start.
            let age = SystemClock.wall() - made;
            if age < Micros(life.0 / 3) && age > Micros::ZERO - LOOK_BACK {
                continue;
            }
            let renewed = authority
                .issue_host(&key, &names, SystemClock.wall(), life)
                .and_then(|issued| certificate.replace(&key, &issued.certificate));
            match renewed {
                Ok(()) => {
                    made = SystemClock.wall();
                    tracing::info!(target: "access", "the host's certificate was renewed");
                },
                Err(error) => tracing::error!(%error, "the host's certificate was not renewed"),
            }
        }
    });
    Ok(())
}

/// What browsers on other machines may know this one by.
fn own_names(listen: IpAddr) -> Names {
    let mut addresses = vec![IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if !listen.is_unspecified() {
        addresses.push(listen);
    }
    // The address of the way out; nothing is sent.
    let outside = std::net::UdpSocket::bind("0.0.0.0:0")
        .and_then(|socket| socket.connect("192.0.2.1:9").and_then(|()| socket.local_addr()));
    addresses.extend(outside.map(|address| address.ip()).ok());
    addresses.sort_unstable();
    addresses.dedup();
    Names { names: vec![paths::hostname()], addresses }
}
