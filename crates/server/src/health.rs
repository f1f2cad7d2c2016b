//! `isobar health`: asks the platform with these settings whether it is ready, for health checks in containers that
//! have no other program.

use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::time::Duration;

use crate::Failure;
use crate::config::{self, Settings};

/// Timeout of the connection, and of each read.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Most bytes of the answer that are read.
pub const HEALTH_BYTES_MAX: u64 = 64 * 1024;

/// Succeeds if the platform is ready; the error says why it is not.
pub fn ask(flags: &config::Flags) -> Result<(), Failure> {
    let settings = config::load(flags)?.settings;
    let address = operations_address(&settings)?;
    let answer = call(address, "/health/ready", HEALTH_BYTES_MAX);
    let answer = answer.map_err(|error| format!("no answer from {address}: {error}"))?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(()),
        Some(status) => Err(format!("not ready: {address} answers {status} {body}").trim_end().into()),
        None => Err(format!("{address} does not speak HTTP").into()),
    }
}

/// Returns the body of the answer to a GET, whatever its status.
pub fn get(address: SocketAddr, path: &str, bytes_max: u64) -> io::Result<String> {
    let answer = call(address, path, bytes_max)?;
    let body = answer.strip_prefix("HTTP/1.1 ").and_then(|answer| answer.split_once("\r\n\r\n"));
    body.map(|(_, body)| body.to_owned()).ok_or_else(|| io::Error::other("it does not speak HTTP"))
}

/// Returns the address of the health checks over plain HTTP.
pub fn operations_address(settings: &Settings) -> Result<SocketAddr, Failure> {
    let address = match settings.http.operations_listen {
        Some(address) => address,
        None if settings.http.tls.is_some() => {
            return Err("it serves HTTPS: set http.operations_listen, where health is served over HTTP".into());
        }
        None => settings.listen,
    };
    Ok(reachable(address))
}

/// Replaces an unspecified address by loopback, which reaches it from this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Returns the whole answer to a GET over HTTP/1.1, up to a length.
fn call(address: SocketAddr, path: &str, bytes_max: u64) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, HEALTH_TIMEOUT)?;
    stream.set_read_timeout(Some(HEALTH_TIMEOUT))?;
    stream.set_write_timeout(Some(HEALTH_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.take(bytes_max).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_addresses_are_reached_by_loopback() {
        for (listens, asked) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("192.0.2.1:80", "192.0.2.1:80")]
        {
            assert_eq!(reachable(listens.parse().unwrap()), asked.parse().unwrap());
        }
    }
}
