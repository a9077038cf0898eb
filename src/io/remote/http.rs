//! HTTP clients of stores, as in the `object_store` crate except for redirects and for names in listings.

use crate::io::usize_of;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::client::{
    ClientConfigKey as Config, HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService,
};
use object_store::path::Path as Key;
use object_store::{ClientOptions, Error, Result};
use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::redirect::Policy;
use reqwest::{Certificate, NoProxy, Proxy};

/// Largest number of redirects that are followed in a row.
const MOST_REDIRECTS: usize = 10;

/// Creates the clients of a store.
#[derive(Debug)]
pub(super) struct Connector {
    /// True if redirects to the same server are followed. Redirects to another server never are: it would receive data meant
    /// for the first server, and only this machine may be able to reach it.
    pub(super) follows: bool,
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> Result<HttpClient> {
        let client = builder(options)?.redirect(self.policy()).build().map_err(unusable)?;
        Ok(HttpClient::new(Service(client)))
    }
}

impl Connector {
    fn policy(&self) -> Policy {
        if !self.follows {
            return Policy::none();
        }
        Policy::custom(|attempt| {
            let is_same = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
            let may_follow = is_same && attempt.previous().len() <= MOST_REDIRECTS;
            if may_follow { attempt.follow() } else { attempt.stop() }
        })
    }
}

fn unusable(error: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Generic { store: "HTTP client", source: Box::new(error) }
}

/// Sets a timeout of a client.
type Set = fn(reqwest::ClientBuilder, Duration) -> reqwest::ClientBuilder;

/// Applies the options to a client, as the crate does in a private function.
fn builder(options: &ClientOptions) -> Result<reqwest::ClientBuilder> {
    let value = |key: Config| options.get_config_value(&key);
    let is_set = |key: Config| value(key).is_some_and(|text| text == "true");
    let time = |key: Config| value(key).map(|text| humantime::parse_duration(&text)).transpose().map_err(unusable);
    let agent = value(Config::UserAgent).unwrap_or_else(|| concat!("logdex/", env!("CARGO_PKG_VERSION")).to_owned());
    // Bytes are read by offset, so the server must not compress them.
    let mut builder = reqwest::Client::builder().user_agent(agent).no_gzip().no_brotli().no_zstd().no_deflate();
    if let Some(headers) = options.get_default_headers() {
        builder = builder.default_headers(headers.clone());
    }
    if let Some(url) = value(Config::ProxyUrl) {
        let excludes = value(Config::ProxyExcludes).map(|text| NoProxy::from_string(&text));
        let proxy = Proxy::all(url).map_err(unusable)?;
        builder = builder.proxy(match excludes {
            Some(excludes) => proxy.no_proxy(excludes),
            None => proxy,
        });
        if let Some(pem) = value(Config::ProxyCaCertificate) {
            builder = builder.tls_certs_merge([Certificate::from_pem(pem.as_bytes()).map_err(unusable)?]);
        }
    }
    if is_set(Config::NoSystemCertificates) {
        builder = builder.tls_certs_only([]);
    }
    let times: [(Config, Set); 6] = [
        (Config::Timeout, reqwest::ClientBuilder::timeout),
        (Config::ConnectTimeout, reqwest::ClientBuilder::connect_timeout),
        (Config::ReadTimeout, reqwest::ClientBuilder::read_timeout),
        (Config::PoolIdleTimeout, |builder, time| builder.pool_idle_timeout(time)),
        (Config::Http2KeepAliveInterval, |builder, time| builder.http2_keep_alive_interval(time)),
        (Config::Http2KeepAliveTimeout, reqwest::ClientBuilder::http2_keep_alive_timeout),
    ];
    for (key, set) in times {
        if let Some(time) = time(key)? {
            builder = set(builder, time);
        }
    }
    if let Some(most) = value(Config::PoolMaxIdlePerHost) {
        builder = builder.pool_max_idle_per_host(most.parse().map_err(unusable)?);
    }
    if let Some(size) = value(Config::Http2MaxFrameSize) {
        builder = builder.http2_max_frame_size(size.parse::<u32>().map_err(unusable)?);
    }
    builder = builder.http2_keep_alive_while_idle(is_set(Config::Http2KeepAliveWhileIdle));
    if is_set(Config::Http1Only) {
        builder = builder.http1_only();
    }
    if is_set(Config::Http2Only) {
        builder = builder.http2_prior_knowledge();
    }
    builder = builder.danger_accept_invalid_certs(is_set(Config::AllowInvalidCertificates));
    Ok(builder.https_only(!is_set(Config::AllowHttp)))
}

/// A client that omits objects whose names are not valid paths from listings. The crate rejects a listing with such an object.
#[derive(Debug)]
struct Service(reqwest::Client);

#[async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> std::result::Result<HttpResponse, HttpError> {
        let is_list =
            request.uri().query().is_some_and(|query| query.contains("list-type=2") || query.contains("comp=list"));
        let answer = HttpService::call(&self.0, request).await?;
        if !is_list || !answer.status().is_success() {
            return Ok(answer);
        }
        let (head, body) = answer.into_parts();
        let listing = body.bytes().await?;
        let listing = match with_paths_only(&listing) {
            Ok(Some(kept)) => Bytes::from(kept),
            // The crate reports the error.
            Ok(None) | Err(_) => listing,
        };
        Ok(HttpResponse::from_parts(head, listing.into()))
    }
}

/// Returns a listing without the names that are not valid paths; `None`: all names are valid.
fn with_paths_only(listing: &[u8]) -> std::result::Result<Option<Vec<u8>>, quick_xml::Error> {
    let mut reader = Reader::from_reader(listing);
    // The start of the current entry, and the name in it.
    let (mut begin, mut name, mut is_name) = (None, String::new(), false);
    let mut kept: Option<Vec<u8>> = None;
    let mut copied = 0;
    loop {
        let at = usize_of(reader.buffer_position());
        match reader.read_event()? {
            Event::Eof => break,
            Event::Start(tag) => match tag.name().as_ref() {
                b"Contents" | b"CommonPrefixes" | b"Blob" | b"BlobPrefix" => {
                    begin = Some(at);
                    name.clear();
                }
                b"Key" | b"Prefix" | b"Name" => is_name = begin.is_some(),
                _ => {}
            },
            Event::Text(text) if is_name => name.push_str(&text.decode()?),
            Event::GeneralRef(reference) if is_name => match reference.resolve_char_ref()? {
                Some(letter) => name.push(letter),
                None => name.push('&'),
            },
            Event::End(tag) => match tag.name().as_ref() {
                b"Contents" | b"CommonPrefixes" | b"Blob" | b"BlobPrefix" => {
                    let end = usize_of(reader.buffer_position());
                    if let Some(begin) = begin.take().filter(|_| Key::parse(&name).is_err()) {
                        let kept = kept.get_or_insert_default();
                        kept.extend_from_slice(listing.get(copied..begin).unwrap_or_default());
                        copied = end;
                    }
                }
                _ => is_name = false,
            },
            _ => {}
        }
    }
    if let Some(kept) = &mut kept {
        kept.extend_from_slice(listing.get(copied..).unwrap_or_default());
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_path_can_have_are_left_out_of_a_listing() {
        let entry = |key: &str| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>");
        let prefix = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let of = |parts: &[String]| format!("<?xml version=\"1.0\"?><L><Prefix>../</Prefix>{}</L>", parts.concat());
        let good = [entry("a/b"), entry("a/&lt;..&gt;"), prefix("a/c d/"), entry("a/")];
        assert_eq!(with_paths_only(of(&good).as_bytes()).unwrap(), None);
        for bad in ["a/../b", "a/./b", "a//b", "a/&#46;./b", "a/&#1;"] {
            for bad in [entry(bad), prefix(&format!("{bad}/"))] {
                let listing = of(&[&good[..1], &[bad], &good[1..]].concat());
                let kept = with_paths_only(listing.as_bytes()).unwrap().unwrap();
                assert_eq!(String::from_utf8(kept).unwrap(), of(&good), "{listing}");
            }
        }
        assert!(with_paths_only(b"<L><Contents></L>").is_err());
    }
}
