//! Every hostile file that the format's tests have, through the whole loader.

use super::{Cases, Wanted};
use attend_testkit::files::Probe;
use attend_testkit::hostile;
use attend_testkit::memory::alone;
use std::path::Path;

#[test]
fn hostile_files_are_refused_by_the_loader() {
    let _alone = alone();
    let mut cases = Cases::default();
    for case in hostile::cases(7) {
        let folder = tempfile::tempdir().unwrap();
        case.write(folder.path()).unwrap();
        // A field that the architecture does not read may hold anything; too few tensors are then the error.
        let words = match case.probe {
            Some(Probe::Count(field) | Probe::Number(field)) => {
                vec![field.into(), "layers are claimed".into(), "`".into(), "not valid JSON".into()]
            }
            _ => Vec::new(),
        };
        let path = folder.path().join(&case.open);
        cases.check_at(&format!("{} {}", case.class, case.name), &path, case.size(), &Wanted::Refused(words));
        assert!(!folder.path().join("marker").exists() && !Path::new("marker").exists(), "{} ran code", case.name);
    }
    cases.done(900);
}
