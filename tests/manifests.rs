//! The artifact manifests of `manifests/`: what an operator copies from must be right.

use std::fs;

use anyhow::{Context, Result};
use ds4_manifest::ArtifactManifest;
use ds4_tests::{demo_model, paths_below, repository};
use sha2::{Digest, Sha256};

#[test]
fn every_artifact_manifest_is_valid_and_named_after_its_id() -> Result<()> {
    let paths = paths_below(&repository().join("manifests"))?;
    let manifests: Vec<_> = paths.iter().filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    assert!(!manifests.is_empty());
    for path in manifests {
        let manifest = ArtifactManifest::parse(&fs::read_to_string(path)?).context(path.display().to_string())?;
        assert_eq!(Some(manifest.id.as_str()), path.file_stem().and_then(|stem| stem.to_str()));
    }
    Ok(())
}

#[test]
fn the_model_in_the_repository_is_the_one_its_manifest_describes() -> Result<()> {
    let path = demo_model();
    let manifest = repository().join("manifests").join(path.file_name().context("a name")?).with_extension("json");
    let manifest = ArtifactManifest::parse(&fs::read_to_string(manifest)?)?;
    let bytes = fs::read(&path)?;
    let [file] = manifest.files.as_slice() else { panic!("one file: {:?}", manifest.files) };
    assert_eq!(Some(file.name.as_str()), path.file_name().and_then(|name| name.to_str()));
    assert_eq!(file.size.0, u64::try_from(bytes.len())?);
    assert_eq!(file.sha256.to_string(), format!("{:x}", Sha256::digest(&bytes)));
    Ok(())
}
