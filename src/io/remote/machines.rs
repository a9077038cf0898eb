//! The stores of other machines: object stores, HTTP servers and HDFS. The features `remote` and `hdfs` enable their clients.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::{BackoffConfig, ClientConfigKey, ClientOptions, ObjectStore, RetryConfig};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue};

use super::failure::{Failure, RETRY_TIMEOUT, deadline};
use super::http::Connector;
use super::url::Options;

/// Without a byte for this part of the deadline, an attempt has failed.
const ATTEMPTS: u32 = 3;

/// Makes the store of a URL. The environment counts where an option is not given.
pub(super) fn connect(url: &str, options: &Options) -> Result<Arc<dyn ObjectStore>, Failure> {
    // TLS needs it; a second call has no effect.
    _ = rustls::crypto::ring::default_provider().install_default();
    let deadline = deadline(options)?;
    // A body may take its time as long as bytes come.
    let client = ClientOptions::new().with_timeout_disabled().with_read_timeout(deadline / ATTEMPTS);
    let foreign = || options.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(RETRY_TIMEOUT));
    let retry = RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(8),
            base: 2.0,
        },
        max_retries: 8,
        retry_timeout: deadline,
    };
    let failure = |e: object_store::Error| Failure::of(&e, options);
    if let Some((name, _)) = foreign().find(|(name, _)| name.to_ascii_lowercase().ends_with("randomize_addresses")) {
        let text = format!("storage option {name:?}: not supported; addresses are used in the order of the resolver");
        return Err(Failure::input(text));
    }
    // An S3 signature is valid for one address.
    let follows = !url.starts_with("s3");
    /// Sets the options of a builder, by the names of the crate.
    macro_rules! configured {
        ($builder:ident, $prefix:literal) => {{
            let endpoints = endpoints_of_environment($prefix)?;
            let mut builder = $builder::from_env().with_url(url);
            builder = builder.with_retry(retry).with_client_options(client).with_http_connector(Connector { follows });
            let given = options.iter().filter(|(name, _)| is_endpoint(name)).map(|(_, value)| value);
            if given.chain(&endpoints).any(|value| value.starts_with("http://")) {
                // The caller that names such an endpoint wants it.
                builder = builder.with_config("allow_http".parse().map_err(failure)?, "true");
            }
            for (name, value) in foreign() {
                check_endpoint(name, value)?;
                let key = name.to_ascii_lowercase().parse().map_err(|_| unknown(name, url))?;
                builder = builder.with_config(key, value);
            }
            Arc::new(builder.build().map_err(failure)?)
        }};
    }
    Ok(match url.split(':').next().unwrap_or_default() {
        "s3" | "s3a" => configured!(AmazonS3Builder, "AWS_"),
        "gs" => configured!(GoogleCloudStorageBuilder, "GOOGLE_"),
        "az" | "azure" | "abfs" | "abfss" | "adl" => configured!(MicrosoftAzureBuilder, "AZURE_"),
        #[cfg(feature = "hdfs")]
        "hdfs" => {
            let builder = hdfs_native_object_store::HdfsObjectStoreBuilder::new().with_url(url);
            Arc::new(builder.with_config(foreign().cloned()).build().map_err(failure)?)
        }
        #[cfg(not(feature = "hdfs"))]
        "hdfs" => return Err(Failure::input("this build reads no HDFS: build logdex with the feature `hdfs`")),
        _ => {
            let client = match authorization(options)? {
                Some(headers) => client.with_default_headers(headers),
                None => client,
            };
            let mut builder = HttpBuilder::new().with_url(url).with_retry(retry).with_client_options(client);
            builder = builder.with_http_connector(Connector { follows });
            if url.starts_with("http://") {
                builder = builder.with_config(ClientConfigKey::AllowHttp, "true");
            }
            for (name, value) in foreign().filter(|(name, _)| ![USERNAME, PASSWORD].contains(&name.as_str())) {
                let key = name.to_ascii_lowercase().parse().map_err(|_| unknown(name, url))?;
                builder = builder.with_config(key, value);
            }
            Arc::new(builder.build().map_err(failure)?)
        }
    })
}

/// logdex's own options for HTTP servers. In a URL they would appear in messages, results and plans.
const USERNAME: &str = "username";
const PASSWORD: &str = "password";

/// Returns the `Authorization` header if the options have a user name or a password.
fn authorization(options: &Options) -> Result<Option<HeaderMap>, Failure> {
    let value = |wanted: &str| options.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let (user, password) = match (value(USERNAME), value(PASSWORD)) {
        (None, None) => return Ok(None),
        (user, password) => (user.unwrap_or_default(), password.unwrap_or_default()),
    };
    let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let mut head = HeaderValue::try_from(text).map_err(|e| Failure::input(e.to_string()))?;
    head.set_sensitive(true);
    Ok(Some(HeaderMap::from_iter([(AUTHORIZATION, head)])))
}

/// Returns whether an option or a variable of the environment, in small letters or capitals, is the URL of a server.
fn is_endpoint(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.contains("endpoint") && !name.contains("use_")
}

/// Returns the endpoints in the environment that the crate takes.
fn endpoints_of_environment(prefix: &str) -> Result<Vec<String>, Failure> {
    let mut found = Vec::new();
    for (name, value) in std::env::vars_os() {
        if let (Some(name), Some(value)) = (name.to_str(), value.to_str())
            && name.starts_with(prefix)
            && is_endpoint(name)
        {
            check_endpoint(name, value)?;
            found.push(value.to_owned());
        }
    }
    Ok(found)
}

/// Refuses an endpoint that is no URL, at which the crate panics. It may hold a password, so the error does not repeat it.
fn check_endpoint(name: &str, value: &str) -> Result<(), Failure> {
    let host = ["http://", "https://"].iter().find_map(|scheme| value.strip_prefix(scheme));
    let is_host = host.is_some_and(|rest| {
        let host = rest.split('/').next().unwrap_or_default();
        !host.is_empty()
            && !host.starts_with(':')
            && !host.contains('@')
            && rest.chars().all(|each| each.is_ascii_alphanumeric() || "-._~:/[]@%".contains(each))
    });
    if is_endpoint(name) && !is_host {
        let text =
            format!("storage option {name:?}: expected a URL such as https://host:9000, without user and password");
        return Err(Failure::input(text));
    }
    Ok(())
}

fn unknown(name: &str, url: &str) -> Failure {
    let scheme = url.split(':').next().unwrap_or_default();
    let text = format!("storage option {name:?}: expected a name that the object_store crate knows for {scheme}");
    Failure::input(text)
}
