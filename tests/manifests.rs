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
fn the_models_in_the_repository_are_those_their_manifest_describes() -> Result<()> {
    let model = demo_model();
    let manifest = repository().join("manifests").join(model.file_name().context("a name")?).with_extension("json");
    let manifest = ArtifactManifest::parse(&fs::read_to_string(manifest)?)?;
    let folder = model.parent().context("a folder")?;
    assert_eq!(folder.join(&manifest.files[0].name), model, "the trunk comes first");
    assert_eq!(manifest.files.len(), 2, "trunk and draft block");
    for file in &manifest.files {
        let bytes = fs::read(folder.join(&file.name))?;
        assert_eq!(file.size.0, u64::try_from(bytes.len())?, "{}", file.name);
        assert_eq!(file.sha256.to_string(), format!("{:x}", Sha256::digest(&bytes)), "{}", file.name);
    }
    Ok(())
}
