//! Addresses that plugins may come from, and their text without secrets.
//!
//! The client's resolver checks the address, so the client connects to the checked address. A name that resolves
//! differently the next time gains nothing.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::Arc,
};

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
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
            let resolved: Vec<SocketAddr> = lookup_host((host, 0)).await?.collect();
            let allowed = guard.select(host, resolved)?;
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
        resolved: Vec<SocketAddr>,
    ) -> Result<Vec<SocketAddr>, Box<dyn std::error::Error + Send + Sync>> {
        if self.allow_local || self.trusts(host) {
            return Ok(resolved);
        }
        let Some(first) = resolved.first().map(SocketAddr::ip) else {
            return Err(io::Error::from(io::ErrorKind::NotFound).into());
        };
        let allowed: Vec<SocketAddr> = resolved
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

/// Cloud metadata addresses that are in no registry for special addresses.
///
/// Others are in registered blocks: 169.254.169.254 in most clouds, fd00:ec2::254 at AWS, 100.100.100.200 at Alibaba
/// Cloud, 192.0.0.192 at Oracle Cloud.
const CLOUD: [IpAddr; 1] = [
    // Azure: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
];

/// Returns true if an address belongs to one server for the whole Internet.
///
/// [`iprfc::RFC6890`] has IANA's registries for special-purpose addresses, with every block that they ever had.
pub(super) fn is_public(address: IpAddr) -> bool {
    // ::ffff:169.254.169.254 leads to the same server as the address in it.
    let address = reached(address);
    let is_unicast = match address {
        IpAddr::V4(address) => !address.is_multicast(),
        // Global unicast is one eighth of all addresses.
        IpAddr::V6(address) => address.segments()[0] & 0xe000 == 0x2000,
    };
    is_unicast && !iprfc::RFC6890.contains(&address) && !CLOUD.contains(&address)
}

/// Returns the IPv4 address inside a mapped or translated address (RFC 6052), and any other address unchanged.
fn reached(address: IpAddr) -> IpAddr {
    let IpAddr::V6(outer) = address else {
        return address;
    };
    match outer.segments() {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Ipv4Addr::from_bits((u32::from(high) << 16) | u32::from(low)).into()
        }
        _ => address,
    }
}

/// Returns an address without the parts that may be secret.
pub(super) fn shown(address: &str) -> String {
    let Ok(mut url) = Url::parse(address) else {
        return "an address that cannot be read".to_owned();
    };
    url.set_query(None);
    url.set_fragment(None);
    // These fail only for addresses that can have neither, and then there is none to remove.
    url.set_username("")
        .and_then(|()| url.set_password(None))
        .map_or_else(|()| url.scheme().to_owned(), |()| url.to_string())
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
            "168.63.129.15",
            "168.63.129.17",
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
            "fec0::1",
            "4000::1",
            // The machine's own cloud.
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "64:ff9b::a83f:8110",
            "100.100.100.200",
            "192.0.0.192",
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

        let error = guard
            .select("example.com", addresses(&["127.0.0.1:0"]))
            .unwrap_err();
        assert_eq!(
            *error.downcast::<RefusedAddress>().unwrap(),
            RefusedAddress {
                host: "example.com".to_owned(),
                address: Ipv4Addr::LOCALHOST.into(),
            }
        );
    }
}
