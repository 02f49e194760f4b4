//! Artifact manifests, good and forged.

use ds4_manifest::{ArtifactError, ArtifactManifest};

const GOOD: &str = r#"{"schema":"ds4.artifact/1","id":"m","title":"t","family":"f","quantisation":"q",
    "files":[{"name":"m.gguf","size":1,"sha256":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}],
    "limits":{"context":1},"licence":{"name":"MIT","url":null}}"#;

#[test]
fn a_good_manifest_is_read() {
    assert_eq!(ArtifactManifest::parse(GOOD).unwrap().files[0].name, "m.gguf");
}

#[test]
fn unknown_fields_schemas_and_file_names_are_refused() {
    let parse = |from: &str, to: &str| ArtifactManifest::parse(&GOOD.replace(from, to)).unwrap_err();
    assert!(matches!(parse(r#""id""#, r#""more":1,"id""#), ArtifactError::Json { .. }));
    assert!(matches!(parse("artifact/1", "artifact/9"), ArtifactError::UnknownSchema { .. }));
    assert!(matches!(parse("m.gguf", "../m.gguf"), ArtifactError::File { .. }));
    assert!(matches!(parse(r#""size":1"#, r#""size":0"#), ArtifactError::File { .. }));
    assert!(matches!(parse("e3b0", "xxxx"), ArtifactError::Json { .. }));
}
