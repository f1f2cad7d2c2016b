use std::os::unix::ffi::OsStringExt as _;

use super::*;
use crate::backups::schedule::Schedule;

fn load_with(file: Option<&str>, environment: &[(&str, &str)], flags: Flags) -> Result<Settings, Vec<String>> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("isobar.toml");
    let config = file.map(|content| {
        std::fs::write(&path, content).unwrap();
        path.clone()
    });
    let variables = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let prefix = format!("{}/", folder.path().display());
    load_from(&Flags { config, ..flags }, variables)
        .map(|loaded| loaded.settings)
        .map_err(|bad| bad.0.iter().map(|fault| fault.to_string().replace(&prefix, "")).collect())
}

/// A public key, of the manual of age.
const RECIPIENT: &str = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p";

/// Returns settings without backups.
fn no_backups() -> BackupSettings {
    BackupSettings {
        schedule: None,
        keep: 7,
        target: None,
        encrypt_to: vec![],
        identity: None,
        access: Access { endpoint: None, region: "us-east-1".to_owned(), key_id: None, secret_key: None },
    }
}

// Holds: c7.full, c10.window
#[test]
fn commented_file_is_the_default() {
    let settings = load_with(None, &[], Flags::default()).unwrap();
    assert_eq!(settings, load_with(Some(DEFAULT_FILE), &[], Flags::default()).unwrap());
    assert_eq!(
        settings,
        Settings {
            listen: "127.0.0.1:8080".parse().unwrap(),
            data: "./data".into(),
            public_url: None,
            log: LogChoice::read("info").unwrap(),
            registry: "sqlite:./data/registry.db".to_owned(),
            telemetry: TelemetryPlace::Folder("./data/telemetry".into()),
            needs_syncs: true,
            http: Http {
                threads: default_threads(),
                cors_origins: vec![],
                max_body_bytes: 1024 * 1024,
                max_connections: 20_000,
                trusted_proxies: vec![],
                tls: None,
                acme: None,
                operations_listen: None,
            },
            rate_limit: RateLimits { user: 10_000, device: 6_000, address: 600 },
            registration: Registration { open: true, require_verified_email: false },
            mail: Mail {
                smtp_url: None,
                from: "Isobar <isobar@localhost>".to_owned(),
                bounds: LetterBounds { account_hour: 60, tenant_hour: 1_000 },
            },
            outgoing_allow: vec![],
            queue_max_events: 10_000,
            backup: no_backups(),
            otlp: None,
        }
    );
}

// Holds: c12.settings
#[test]
fn flag_overrides_environment_file_and_default() {
    let file = "listen = '127.0.0.1:1'\ndata = 'a'\nlog = 'warn'\n[rate_limit]\nuser = 1\ndevice = 2\n";
    let environment = [("ISOBAR_LISTEN", "127.0.0.1:2"), ("ISOBAR_DATA", "b"), ("ISOBAR_RATE_LIMIT__USER", "5")];
    let flags = Flags { listen: Some("127.0.0.1:3".to_owned()), ..Flags::default() };
    let settings = load_with(Some(file), &environment, flags).unwrap();
    assert_eq!(settings.listen.port(), 3);
    assert_eq!(settings.data, PathBuf::from("b"));
    assert_eq!(settings.registry, "sqlite:b/registry.db");
    assert_eq!(settings.rate_limit, RateLimits { user: 5, device: 2, address: 600 });
    assert_eq!(settings.log, LogChoice::read("warn").unwrap());
}

#[test]
fn every_kind_of_setting_can_come_from_the_environment() {
    let settings = load_with(
        None,
        &[
            ("ISOBAR_REGISTRATION__MODE", "closed"),
            ("ISOBAR_REGISTRATION__REQUIRE_VERIFIED_EMAIL", "true"),
            ("ISOBAR_HTTP__CORS_ORIGINS", "https://a.example, http://localhost:5173"),
            ("ISOBAR_OUTGOING__ALLOW", "10.0.0.0/8,printer.local"),
            ("ISOBAR_PUBLIC_URL", "https://iot.example.com/"),
            ("ISOBAR_ADMIN_PASSWORD", "no setting"),
            ("ISOBAR_PORT", "tcp://10.0.0.1:8080"),
            ("HOME", "/"),
        ],
        Flags::default(),
    )
    .unwrap();
    assert!(!settings.registration.open && settings.registration.require_verified_email);
    assert_eq!(settings.http.cors_origins, ["https://a.example", "http://localhost:5173"]);
    assert_eq!(settings.outgoing_allow, ["10.0.0.0/8", "printer.local"]);
    assert_eq!(settings.public_url.as_deref(), Some("https://iot.example.com"));
}

// Holds: c12.sections
#[test]
fn every_name_of_the_contract_is_a_setting() {
    let environment = [
        ("ISOBAR_LISTEN", "127.0.0.1:9"),
        ("ISOBAR_DATA", "here"),
        ("ISOBAR_PUBLIC_URL", "https://iot.example.com"),
        ("ISOBAR_LOG", "debug"),
        ("ISOBAR_STORES__REGISTRY", "postgres://isobar@localhost/isobar"),
        ("ISOBAR_STORES__TELEMETRY", "rocksdb:there"),
        ("ISOBAR_STORES__NEEDS_SYNCS", "false"),
        ("ISOBAR_HTTP__THREADS", "3"),
        ("ISOBAR_HTTP__CORS_ORIGINS", "https://a.example"),
        ("ISOBAR_HTTP__MAX_BODY_BYTES", "2048"),
        ("ISOBAR_HTTP__MAX_CONNECTIONS", "32"),
        ("ISOBAR_HTTP__TRUSTED_PROXIES", "10.1.0.0/16, ::1"),
        ("ISOBAR_HTTP__TLS_CERTIFICATE", "cert.pem"),
        ("ISOBAR_HTTP__TLS_KEY", "key.pem"),
        ("ISOBAR_HTTP__OPERATIONS_LISTEN", "127.0.0.1:9090"),
        ("ISOBAR_RATE_LIMIT__USER", "1"),
        ("ISOBAR_RATE_LIMIT__DEVICE", "2"),
        ("ISOBAR_RATE_LIMIT__ADDRESS", "0"),
        ("ISOBAR_REGISTRATION__MODE", "closed"),
        ("ISOBAR_REGISTRATION__REQUIRE_VERIFIED_EMAIL", "true"),
        ("ISOBAR_MAIL__SMTP_URL", "smtp://mail.example.com:25"),
        ("ISOBAR_MAIL__FROM", "iot@example.com"),
        ("ISOBAR_MAIL__ACCOUNT_HOUR", "5"),
        ("ISOBAR_MAIL__TENANT_HOUR", "50"),
        ("ISOBAR_OUTGOING__ALLOW", "10.0.0.0/8"),
        ("ISOBAR_QUEUE__MAX_EVENTS", "7"),
        ("ISOBAR_BACKUP__SCHEDULE", "15 3 * * *"),
        ("ISOBAR_BACKUP__TARGET", "s3://vault/isobar/"),
        ("ISOBAR_BACKUP__KEEP", "30"),
        ("ISOBAR_BACKUP__ENCRYPT_TO", RECIPIENT),
        ("ISOBAR_BACKUP__IDENTITY", "key.txt"),
        ("ISOBAR_BACKUP__S3_ENDPOINT", "https://s3.example.com/"),
        ("ISOBAR_BACKUP__S3_REGION", "eu-1"),
        ("ISOBAR_BACKUP__S3_ACCESS_KEY_ID", "id"),
        ("ISOBAR_BACKUP__S3_SECRET_ACCESS_KEY", "secret"),
        ("ISOBAR_OBSERVABILITY__OTLP_ENDPOINT", "https://collector.example:4318/otlp/"),
        ("ISOBAR_OBSERVABILITY__OTLP_HEADERS", "authorization=Bearer a=b, x-tenant = c"),
        ("ISOBAR_OBSERVABILITY__OTLP_SAMPLE_RATIO", "0.25"),
    ];
    let expected = Settings {
        listen: "127.0.0.1:9".parse().unwrap(),
        data: "here".into(),
        public_url: Some("https://iot.example.com".to_owned()),
        log: LogChoice::read("debug").unwrap(),
        registry: "postgres://isobar@localhost/isobar".to_owned(),
        telemetry: TelemetryPlace::Folder("there".into()),
        needs_syncs: false,
        http: Http {
            threads: 3,
            cors_origins: vec!["https://a.example".to_owned()],
            max_body_bytes: 2048,
            max_connections: 32,
            trusted_proxies: vec!["10.1.0.0/16".parse().unwrap(), "::1/128".parse().unwrap()],
            tls: Some(CertificateFiles { certificate: "cert.pem".into(), key: "key.pem".into() }),
            acme: None,
            operations_listen: Some("127.0.0.1:9090".parse().unwrap()),
        },
        rate_limit: RateLimits { user: 1, device: 2, address: 0 },
        registration: Registration { open: false, require_verified_email: true },
        mail: Mail {
            smtp_url: Some("smtp://mail.example.com:25".to_owned()),
            from: "iot@example.com".to_owned(),
            bounds: LetterBounds { account_hour: 5, tenant_hour: 50 },
        },
        outgoing_allow: vec!["10.0.0.0/8".to_owned()],
        queue_max_events: 7,
        backup: BackupSettings {
            schedule: Some(Schedule::read("15 3 * * *").unwrap()),
            keep: 30,
            target: Some(Place::Bucket { bucket: "vault".to_owned(), prefix: "isobar".to_owned() }),
            encrypt_to: vec![RECIPIENT.to_owned()],
            identity: Some("key.txt".into()),
            access: Access {
                endpoint: Some("https://s3.example.com".to_owned()),
                region: "eu-1".to_owned(),
                key_id: Some("id".to_owned()),
                secret_key: Some("secret".to_owned()),
            },
        },
        otlp: Some(OtlpSettings {
            endpoint: "https://collector.example:4318/otlp".to_owned(),
            host: "collector.example".to_owned(),
            headers: [("authorization", "Bearer a=b"), ("x-tenant", "c")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec(),
            sample_ratio: 0.25,
        }),
    };
    assert_eq!(load_with(None, &environment, Flags::default()), Ok(expected));
}

#[test]
fn all_faults_are_named_at_once() {
    let file = "colour = 'red'\nlisten = 8080\n[http]\ntreads = 2\nmax_body_bytes = -1\n[mail]\nfrom = 'nobody'\n";
    let environment = [
        ("ISOBAR_RATE_LIMIT__USER", "many"),
        ("ISOBAR_REGISTRATION__MODE", "ajar"),
        ("ISOBAR_HTPP__THREADS", "2"),
        ("ISOBAR_STORES__REGISTRY", "mysql://x"),
    ];
    let flags = Flags { log: Some("loud=very".to_owned()), ..Flags::default() };
    let faults = load_with(Some(file), &environment, flags).unwrap_err();
    insta::assert_snapshot!(faults.join("\n"), @r#"
    isobar.toml: colour: there is no setting colour; `isobar config` lists them all
    isobar.toml: http.treads: there is no setting http.treads (did you mean http.threads?)
    ISOBAR_HTPP__THREADS: there is no setting htpp.threads (did you mean http.threads?)
    isobar.toml: listen: must be a text, not a whole number
    --log: "loud=very" is no level (error, warn, info, debug, trace, or target=level)
    ISOBAR_STORES__REGISTRY: must be sqlite:PATH or postgres://…
    isobar.toml: http.max_body_bytes: must be a whole number from 1024 to 67108864, not -1
    ISOBAR_RATE_LIMIT__USER: must be a whole number from 0 to 4294967295, not "many"
    ISOBAR_REGISTRATION__MODE: must be "open" or "closed", not "ajar"
    isobar.toml: mail.from: must hold an e-mail address
    "#);
}

// Holds: c17.databases
#[test]
fn telemetry_is_a_folder_a_database_or_a_list() {
    const REGISTRY: (&str, &str) = ("ISOBAR_STORES__REGISTRY", "postgres://isobar@a/isobar");
    let read = |file: Option<&str>, telemetry: Option<&str>| {
        let mut environment = vec![REGISTRY];
        environment.extend(telemetry.map(|telemetry| ("ISOBAR_STORES__TELEMETRY", telemetry)));
        load_with(file, &environment, Flags::default()).map(|settings| settings.telemetry)
    };
    let databases =
        |names: &[&str]| Ok(TelemetryPlace::Postgres(names.iter().map(|name| format!("postgres://{name}")).collect()));
    let list = "[stores]\ntelemetry = ['postgres://a/x', 'postgres://b/x']";
    assert_eq!(read(Some(list), None), databases(&["a/x", "b/x"]));
    assert_eq!(read(None, Some("postgres://a/x, postgres://b/x")), databases(&["a/x", "b/x"]));
    assert_eq!(read(Some("[stores]\ntelemetry = ['postgres://a/x']"), None), databases(&["a/x"]));
    // A comma in a password makes no list.
    assert_eq!(read(None, Some("postgres://u:a,b@a/x")), databases(&["u:a,b@a/x"]));
    assert_eq!(read(None, Some("rocksdb:a,b")), Ok(TelemetryPlace::Folder("a,b".into())));
    for wrong in ["['rocksdb:a', 'postgres://b/x']", "['postgres://b/x', 'rocksdb:a']", "[]", "[1]", "1"] {
        let faults = read(Some(&format!("[stores]\ntelemetry = {wrong}")), None).unwrap_err();
        assert!(faults[0].starts_with("isobar.toml: stores.telemetry: must be "), "{wrong}: {faults:?}");
    }
    let many = vec!["'postgres://a/x'"; 65].join(", ");
    let faults = read(Some(&format!("[stores]\ntelemetry = [{many}]")), None).unwrap_err();
    assert_eq!(faults, ["isobar.toml: stores.telemetry: may list at most 64 databases"]);
    let faults = load_with(Some(list), &[], Flags::default()).unwrap_err();
    let several = "lists several databases, and for that stores.registry has to be in PostgreSQL too";
    assert_eq!(faults, [format!("isobar.toml: stores.telemetry: {several}")]);
}

// Holds: c14.proxies, c14.connections
#[test]
fn invalid_network_is_named_with_its_fault() {
    for (networks, wrong) in [
        ("10.0.0.0/33", r#""10.0.0.0/33" is no IP address, nor a network like 10.1.0.0/16"#),
        ("proxy.example", r#""proxy.example" is no IP address, nor a network like 10.1.0.0/16"#),
        (
            "::1,10.1.2.3/16",
            r#""10.1.2.3/16" is an address within 10.1.0.0/16: write the network, or the address without a prefix"#,
        ),
        ("0.0.0.0/0", r#""0.0.0.0/0" is every address there is: whoever connects could say that it is anybody"#),
    ] {
        let faults = load_with(None, &[("ISOBAR_HTTP__TRUSTED_PROXIES", networks)], Flags::default()).unwrap_err();
        assert_eq!(faults, [format!("ISOBAR_HTTP__TRUSTED_PROXIES: {wrong}")]);
    }
    let faults = load_with(Some("[http]\nmax_connections = 3\n"), &[], Flags::default()).unwrap_err();
    assert_eq!(faults, ["isobar.toml: http.max_connections: must be a whole number from 16 to 1000000, not 3"]);
}

#[test]
fn invalid_collector_is_named_without_its_headers() {
    let wrong = |name: &str, text: &str| {
        let name = format!("ISOBAR_OBSERVABILITY__{name}");
        let faults = load_with(None, &[(&name, text)], Flags::default()).unwrap_err();
        assert!(faults.len() == 1 && faults[0].starts_with(&name), "{text}: {faults:?}");
        faults[0].clone()
    };
    for url in
        ["collector", "grpc://a:4317", "http://", "http://me:secret@a", "http://a?b", "http://a/#b", "http://a b"]
    {
        wrong("OTLP_ENDPOINT", url);
    }
    for header in ["token", "a b=token", "=token", "a=to\u{1}ken"] {
        let told = wrong("OTLP_HEADERS", header);
        assert!(told.ends_with("like \"authorization=Bearer TOKEN\""), "{told}");
    }
    for ratio in ["1.1", "-0.1", "NaN", "half", ""] {
        wrong("OTLP_SAMPLE_RATIO", ratio);
    }
    let file = "[observability]\notlp_endpoint = 'http://[::1]:4318'\notlp_headers = ['a=very-secret']\notlp_sample_ratio = 1\n";
    let settings = load_with(Some(file), &[], Flags::default()).unwrap();
    assert_eq!(settings.otlp.as_ref().unwrap().host, "[::1]");
    assert!(!format!("{settings:?}").contains("very-secret"));
}

#[test]
fn certificate_and_key_are_required_together() {
    for (given, missing) in [("TLS_KEY", "tls_certificate"), ("TLS_CERTIFICATE", "tls_key")] {
        let faults = load_with(None, &[(&format!("ISOBAR_HTTP__{given}"), "x.pem")], Flags::default()).unwrap_err();
        let given = given.to_lowercase();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].ends_with(&format!("http.{missing}: is required beside http.{given}")), "{faults:?}");
    }
}

fn acme(variables: &[(&str, &str)]) -> Result<Option<Acme>, Vec<String>> {
    let named: Vec<_> = variables.iter().map(|(name, value)| (format!("ISOBAR_HTTP__{name}"), *value)).collect();
    let named: Vec<_> = named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    load_with(None, &named, Flags::default()).map(|settings| settings.http.acme)
}

#[test]
fn acme_needs_no_more_than_a_domain() {
    let read = acme(&[("ACME_DOMAINS", "IoT.example.com, iot.example.org")]).unwrap();
    let expected = Acme {
        domains: vec!["iot.example.com".to_owned(), "iot.example.org".to_owned()],
        email: None,
        directory: "https://acme-v02.api.letsencrypt.org/directory".to_owned(),
    };
    assert_eq!(read, Some(expected));
}

#[test]
fn invalid_acme_settings_are_named() {
    let long = format!("{}.com", "x".repeat(64));
    for (domain, wrong) in [
        ("192.0.2.1", "is an IP address"),
        ("2001:db8::1", "is an IP address"),
        ("*.example.com", "is a wildcard"),
        ("example", "is no domain"),
        ("a..example.com", "is no domain"),
        ("a b.example.com", "is no domain"),
        ("iot.example.com:443", "is no domain"),
        (&long, "is no domain"),
        ("a.example.com,A.example.com", "twice"),
    ] {
        let faults = acme(&[("ACME_DOMAINS", domain)]).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with("ISOBAR_HTTP__ACME_DOMAINS: ") && faults[0].contains(wrong), "{faults:?}");
    }
    let domain = ("ACME_DOMAINS", "iot.example.com");
    for (others, named) in [
        (vec![domain, ("TLS_CERTIFICATE", "c.pem"), ("TLS_KEY", "k.pem")], "ACME_DOMAINS"),
        (vec![domain, ("ACME_EMAIL", "nobody")], "ACME_EMAIL"),
        (vec![("ACME_EMAIL", "ops@example.com")], "ACME_EMAIL"),
        (vec![domain, ("ACME_DIRECTORY", "http://acme.example.com/")], "ACME_DIRECTORY"),
        (vec![domain, ("ACME_DIRECTORY", "")], "ACME_DIRECTORY"),
    ] {
        let faults = acme(&others).unwrap_err();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with(&format!("ISOBAR_HTTP__{named}: ")), "{faults:?}");
    }
}

#[test]
fn unknown_variable_without_section_is_warned_about() {
    let load = |variables: &[(&str, &str)]| {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        load_from(&Flags::default(), variables.into_iter())
    };
    let others =
        [("ISOBAR_BIN", "/opt/isobar"), ("ISOBAR_LISTN", "x"), ("ISOBAR_RATE_LIMIT_USER", "5"), ("ISOBAR_", "")];
    let loaded = load(&[others.as_slice(), &[("ISOBAR_QUEUE__MAX_EVENTS", "7")]].concat()).unwrap();
    assert_eq!((loaded.settings.queue_max_events, loaded.given.len()), (7, 1));
    let warnings: Vec<String> = loaded.warnings.iter().map(Fault::to_string).collect();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    ISOBAR_BIN: is no setting and is ignored
    ISOBAR_LISTN: is no setting and is ignored (did you mean listen?)
    ISOBAR_RATE_LIMIT_USER: is no setting and is ignored (did you mean rate_limit.user?)
    ISOBAR_: is no setting and is ignored
    ");
    // One with a section can only be meant for us.
    let meant = [
        "ISOBAR_HTTP__TREADS",
        "ISOBAR_RATELIMIT__USER",
        "ISOBAR_HTPP__THREADS",
        "ISOBAR_CI__STEP",
        "ISOBAR_MAIL__",
        "ISOBAR___",
        "ISOBAR_HTTP__THREADS__MAX",
    ];
    for variable in meant {
        let bad = load(&[(variable, "closed")]).unwrap_err();
        assert!(bad.0.len() == 1 && bad.0[0].place == variable, "{bad}");
    }
    for (variable, near) in [("ISOBAR_RATELIMIT__USER", "rate_limit.user"), ("ISOBAR_HTPP__THREADS", "http.threads")] {
        let bad = load(&[(variable, "5")]).unwrap_err().to_string();
        assert!(bad.contains(&format!("(did you mean {near}?)")), "{bad}");
    }
}

#[test]
fn setting_in_other_than_utf8_is_named() {
    let garbled = OsString::from_vec(vec![b'5', 0xff]);
    let variables = [(OsString::from("ISOBAR_RATE_LIMIT__USER"), garbled.clone()), (OsString::from("OTHER"), garbled)];
    let bad = load_from(&Flags::default(), texts(variables.into_iter())).unwrap_err();
    assert_eq!(bad.0.len(), 1, "{bad}");
    assert!(bad.to_string().contains("ISOBAR_RATE_LIMIT__USER: must be UTF-8"), "{bad}");
}

#[test]
fn missing_or_invalid_file_is_named() {
    let faults = load_with(Some("listen = \n"), &[], Flags::default()).unwrap_err();
    assert!(faults[0].starts_with("isobar.toml: ") && faults.len() == 1, "{faults:?}");
    let flags = Flags { config: Some("does/not/exist.toml".into()), ..Flags::default() };
    let bad = load_from(&flags, std::iter::empty()).unwrap_err().to_string();
    assert!(bad.contains("does/not/exist.toml: cannot be read"), "{bad}");
}

#[test]
fn contradictory_backup_settings_are_named() {
    let refused = |environment: &[(&str, &str)]| load_with(None, environment, Flags::default()).unwrap_err().join("\n");
    let key = ("ISOBAR_BACKUP__S3_ACCESS_KEY_ID", "key");
    let secret = ("ISOBAR_BACKUP__S3_SECRET_ACCESS_KEY", "not-to-be-shown");
    let target = ("ISOBAR_BACKUP__TARGET", "s3://vault/isobar");
    assert!(refused(&[("ISOBAR_BACKUP__SCHEDULE", "0 3 * * *")]).contains("backup.target: is required"));
    assert!(refused(&[("ISOBAR_BACKUP__SCHEDULE", "daily")]).contains("five fields"));
    assert!(refused(&[target, key]).contains("backup.s3_secret_access_key: is required"));
    assert!(refused(&[target, secret]).contains("backup.s3_access_key_id: is required"));
    assert!(refused(&[("ISOBAR_BACKUP__KEEP", "0")]).contains("from 1 to"));
    for bad in ["s3://", "s3:///a", "s3://a/../b", "s3://a b/c", "ftp://a/b", "s3://a//b"] {
        assert!(refused(&[("ISOBAR_BACKUP__TARGET", bad)]).contains("ISOBAR_BACKUP__TARGET"), "{bad}");
    }
    // A secret key given in place of a public one is not shown.
    let told = refused(&[("ISOBAR_BACKUP__ENCRYPT_TO", "AGE-SECRET-KEY-1QQQ")]);
    assert!(told.contains("ISOBAR_BACKUP__ENCRYPT_TO") && !told.contains("QQQ"), "{told}");
    let settings = load_with(None, &[target, key, secret], Flags::default()).unwrap();
    assert_eq!(settings.backup.target.as_ref().unwrap().to_string(), "s3://vault/isobar");
    assert!(!format!("{settings:?}").contains("not-to-be-shown"));
}
