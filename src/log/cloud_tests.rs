use super::*;
use crate::error::ErrorKind;

fn options(pairs: &[(&str, &str)]) -> StorageOptions {
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[test]
fn a_place_is_read_as_readers_read_it() {
    for (uri, service, bucket, prefix, url) in [
        ("s3://lake/a/b", Service::S3, "lake", "a/b", "s3://lake/a/b/"),
        ("s3a://lake/t", Service::S3, "lake", "t", "s3a://lake/t/"),
        ("s3://lake", Service::S3, "lake", "", "s3://lake/"),
        ("s3://lake/with space/ü", Service::S3, "lake", "with space/ü", "s3://lake/with%20space/%C3%BC/"),
        ("az://box/t", Service::Azure, "box", "t", "az://box/t/"),
        ("azure://box/t", Service::Azure, "box", "t", "azure://box/t/"),
        ("abfss://box@me.dfs.core.windows.net/t", Service::Azure, "box", "t", "abfss://box@me.dfs.core.windows.net/t/"),
        ("gs://lake/t=1", Service::Google, "lake", "t=1", "gs://lake/t=1/"),
    ] {
        let place = CloudPlace::parse(uri).unwrap();
        let found = (place.service, place.bucket.as_str(), place.prefix.as_ref(), place.url.as_str());
        assert_eq!(found, (service, bucket, prefix, url), "{uri}");
    }
}

#[test]
fn a_uri_that_is_not_plain_is_refused_without_being_quoted() {
    for (uri, part) in [
        ("s3://", "no bucket"),
        ("s3:///a", "no bucket"),
        ("s3://lake/a/", "ends with a slash"),
        ("s3://lake//a", "doubled slash"),
        ("s3://lake/a//b", "doubled slash"),
        ("s3://lake/a/../b", ".."),
        ("s3://lake/./b", ". or .."),
        ("s3://lake/a%20b", "a %"),
        ("s3://lake/a\\b", "backslash"),
        ("s3://lake/a\nb", "control"),
        ("s3://SECRET:SECRET@lake/t", "credentials"),
        ("s3://SECRET@lake/t", "credentials"),
        ("az://SECRET@me/t", "credentials"),
        ("abfss://box:SECRET@me.dfs.core.windows.net/t", "no name of one"),
        ("s3://lake/t?sig=SECRET", "query"),
        ("s3://lake/t#SECRET", "fragment"),
        ("s3://lake:9000/t", "no name of one"),
        ("s3://la%6be/t", "no name of one"),
    ] {
        let why = CloudPlace::parse(uri).unwrap_err();
        assert!(why.contains(part) && !why.contains("SECRET"), "{uri:?}: {why}");
    }
}

/// What is chosen for S3 of options and the environment.
fn chosen(given: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<(S3Key, String)> {
    let environment: Vec<_> = environment.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    let place = CloudPlace::parse("s3://lake/t").unwrap();
    place.choose(&options(given), &environment, "AWS_", &S3_RIVALS).unwrap()
}

#[test]
fn an_option_wins_over_the_environment_and_credentials_are_not_mixed() {
    let environment = [
        ("AWS_ACCESS_KEY_ID", "env"),
        ("AWS_SECRET_ACCESS_KEY", "env"),
        ("AWS_SESSION_TOKEN", "env"),
        ("AWS_DEFAULT_REGION", "env"),
        ("AWS_ENDPOINT_URL_S3", "https://env"),
        ("AWS_PROFILE", "env"),
        ("AWS_BUCKET", "env"),
        ("HOME", "env"),
    ];
    let keys = |chosen: &[(S3Key, String)], value: &str| {
        chosen.iter().filter(|(_, v)| v.contains(value)).map(|(key, _)| *key).collect::<Vec<_>>()
    };
    let all = chosen(&[], &environment);
    let expected = [S3Key::AccessKeyId, S3Key::SecretAccessKey, S3Key::Token, S3Key::DefaultRegion, S3Key::S3Endpoint];
    assert_eq!(keys(&all, "env"), expected);
    let own = chosen(&[("aws_access_key_id", "own"), ("SECRET_ACCESS_KEY", "own")], &environment);
    assert_eq!(keys(&own, "env"), [S3Key::DefaultRegion, S3Key::S3Endpoint], "a token of other credentials is none");
    let own = chosen(&[("region", "own"), ("endpoint", "https://own")], &environment);
    assert_eq!(keys(&own, "env"), [S3Key::AccessKeyId, S3Key::SecretAccessKey, S3Key::Token]);
    let own = chosen(&[("role_arn", "own")], &environment);
    assert_eq!(keys(&own, "env"), [S3Key::DefaultRegion, S3Key::S3Endpoint], "keys would win over a role");
}

#[test]
fn options_that_no_client_understands_are_refused_and_no_value_is_shown() {
    let bucket = |uri: &str, given: &[(&str, &str)]| {
        let made = CloudPlace::parse(uri).unwrap().bucket(&options(given), std::iter::empty());
        made.map(drop)
    };
    let s3 = |given: &[(&str, &str)]| bucket("s3://lake/t", given).unwrap_err();
    let keys = [("access_key_id", "SECRET"), ("secret_access_key", "SECRET")];
    for (given, part) in [
        (vec![("regoin", "x")], "\"regoin\" is not known"),
        (vec![("bucket", "x")], "\"bucket\" is not known"),
        (vec![("account_name", "x")], "\"account_name\" is not known"),
        (vec![("region", "x"), ("aws_region", "y")], "twice"),
        (vec![("endpoint", "http://localhost")], "allow_http"),
        (vec![keys[0]], "do not fit"),
        (vec![keys[0], keys[1], ("conditional_put", "SECRET")], "do not fit"),
        (vec![keys[0], keys[1], ("skip_signature", "SECRET")], "do not fit"),
        (vec![keys[0], keys[1], ("timeout", "SECRET")], "do not fit"),
    ] {
        let error = s3(&given);
        assert_eq!(error.kind(), ErrorKind::Config);
        let said = causes(&error);
        assert!(said.contains(part) && !said.contains("SECRET"), "{given:?}: {said}");
    }
    assert!(bucket("s3://lake/t", &keys).is_ok());
    assert!(
        bucket("s3://lake/t", &[keys[0], keys[1], ("endpoint", "http://localhost"), ("allow_http", "true")]).is_ok()
    );
    let said = causes(&bucket("az://box/t", &[("account_key", "SECRET!")]).unwrap_err());
    assert!(said.contains("Account") && !said.contains("SECRET"), "{said}");
    assert!(bucket("az://box/t", &[("account_name", "me"), ("account_key", "c2VjcmV0")]).is_ok());
    assert!(bucket("abfss://box@me.dfs.core.windows.net/t", &[("azure_storage_sas_token", "sv=1&sig=a")]).is_ok());
    let account = r#"{"private_key": "SECRET", "private_key_id": "", "client_email": "", "disable_oauth": true}"#;
    assert!(bucket("gs://lake/t", &[("google_service_account_key", account)]).is_ok());
    let said = causes(&bucket("gs://lake/t", &[("service_account_key", "SECRET")]).unwrap_err());
    assert!(!said.contains("SECRET"), "{said}");
}

#[test]
fn suggestions_are_of_options_that_are_known() {
    for service in [Service::S3, Service::Azure, Service::Google] {
        let unknown: Vec<_> = service.options().iter().filter(|name| !service.knows(name)).collect();
        assert!(unknown.is_empty(), "{service:?}: {unknown:?}");
    }
}

#[test]
fn neither_options_nor_places_show_values() {
    let given = options(&[("secret_access_key", "SECRET"), ("access_key_id", "SECRET")]);
    assert_eq!(format!("{given:?}"), r#"{"access_key_id", "secret_access_key"}"#);
    let location = super::super::Location::open_with("s3://lake/t", super::super::Access::Read, &given).unwrap();
    assert!(!format!("{location:?}").contains("SECRET"), "{location:?}");
}
