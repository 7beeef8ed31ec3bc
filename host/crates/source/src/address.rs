//! The addresses that a plugin may come from.
//!
//! The check is in the resolver of the client, so the checked address is the one that is connected to. A name that
//! resolves differently the next time gains nothing.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use tokio::net::lookup_host;

/// A host that resolves to addresses that are not public.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{host} is at {address}, which is not a public address")]
pub(super) struct RefusedAddress {
    pub(super) host: String,
    pub(super) address: IpAddr,
}

/// Resolves names to allowed addresses.
#[derive(Clone, Debug)]
pub(super) struct Guard {
    /// Allows all addresses.
    pub(super) allow_local: bool,
    /// Hosts that may have any address: the proxies.
    pub(super) trusted: Arc<[String]>,
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            // The client sets the port later.
            let found: Vec<SocketAddr> = lookup_host((host, 0)).await?.collect();
            let allowed = guard.select(host, found)?;
            let addresses: Addrs = Box::new(allowed.into_iter());
            Ok(addresses)
        })
    }
}

impl Guard {
    /// Returns true if a host may have any address.
    pub(super) fn trusts(&self, host: &str) -> bool {
        self.trusted.iter().any(|trusted| trusted == host)
    }

    /// The addresses that may be connected to; an error if there is none.
    fn select(
        &self,
        host: &str,
        found: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        if self.allow_local || self.trusts(host) {
            return Ok(found);
        }
        let Some(first) = found.first().map(SocketAddr::ip) else {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        };
        let allowed: Vec<SocketAddr> = found
            .into_iter()
            .filter(|address| is_public(address.ip()))
            .collect();
        if allowed.is_empty() {
            let host = host.to_owned();
            return Err(RefusedAddress {
                host,
                address: first,
            }
            .into());
        }
        Ok(allowed)
    }
}

/// Returns true if an address belongs to one server for all of the Internet.
///
/// An address that carries an IPv4 address inside is as public as that one.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => {
            let [.., c, d] = address.segments();
            let [[a, b], [c, d]] = [c.to_be_bytes(), d.to_be_bytes()];
            let inner = Ipv4Addr::new(a, b, c, d);
            match address.segments() {
                // Mapped addresses, and those of translators (RFC 6052).
                [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => is_public_v4(inner),
                _ => is_public_v6(address),
            }
        }
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    /// From the registry of special-purpose addresses (RFC 6890), and multicast.
    const SPECIAL: [([u8; 4], u32); 15] = [
        ([0, 0, 0, 0], 8),
        ([10, 0, 0, 0], 8),
        ([100, 64, 0, 0], 10),
        ([127, 0, 0, 0], 8),
        ([169, 254, 0, 0], 16),
        ([172, 16, 0, 0], 12),
        ([192, 0, 0, 0], 24),
        ([192, 0, 2, 0], 24),
        ([192, 88, 99, 0], 24),
        ([192, 168, 0, 0], 16),
        ([198, 18, 0, 0], 15),
        ([198, 51, 100, 0], 24),
        ([203, 0, 113, 0], 24),
        ([224, 0, 0, 0], 4),
        ([240, 0, 0, 0], 4),
    ];
    !SPECIAL.into_iter().any(|(network, bits)| {
        let differing = u32::from(address) ^ u32::from_be_bytes(network);
        differing.leading_zeros() >= bits
    })
}

/// Global unicast is one eighth of all addresses; some of it is for tunnels, tests and documentation.
fn is_public_v6(address: Ipv6Addr) -> bool {
    match address.segments() {
        // Protocol assignments, Teredo among them; documentation.
        [0x2001, second, ..] => second >= 0x200 && second != 0xdb8,
        // 6to4: the end of the tunnel is an IPv4 address inside this one, and any user can choose it.
        [0x2002, ..] => false,
        // Documentation.
        [0x3fff, second, ..] => second > 0xfff,
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        for address in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "198.19.255.255",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "3fff:0:1::",
            "5f00::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn of_several_addresses_the_public_ones_are_used() {
        let guard = Guard {
            allow_local: false,
            trusted: Arc::from(["proxy.local".to_owned()]),
        };
        let addresses = |texts: &[&str]| -> Vec<SocketAddr> {
            texts.iter().map(|text| text.parse().unwrap()).collect()
        };
        let mixed = addresses(&["127.0.0.1:0", "1.1.1.1:0", "[::1]:0"]);
        let used = guard.select("example.com", mixed.clone()).unwrap();
        assert_eq!(used, addresses(&["1.1.1.1:0"]));
        assert_eq!(guard.select("proxy.local", mixed.clone()).unwrap(), mixed);

        let refused = guard
            .select("example.com", addresses(&["127.0.0.1:0"]))
            .unwrap_err();
        assert_eq!(
            *refused.downcast::<RefusedAddress>().unwrap(),
            RefusedAddress {
                host: "example.com".to_owned(),
                address: Ipv4Addr::LOCALHOST.into(),
            }
        );
    }
}
