//! Who may attach.

use ds4_wire::Peer;

/// Who may attach beside the owner's user and root.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Users.
    pub uids: Vec<u32>,
    /// Groups, compared with a process's primary one.
    pub gids: Vec<u32>,
}

impl Access {
    /// Whether a process that connected may attach to an owner that runs as `own_uid`.
    pub(crate) fn allows(&self, own_uid: u32, peer: Peer) -> bool {
        self.administers(own_uid, peer) || self.uids.contains(&peer.uid) || self.gids.contains(&peer.gid)
    }

    /// Whether it may shut the owner down.
    pub(crate) fn administers(&self, own_uid: u32, peer: Peer) -> bool {
        peer.uid == own_uid || peer.uid == 0
    }

    /// The rule for people.
    pub(crate) fn rule(&self, own_uid: u32) -> String {
        let mut rule = format!("uid {own_uid} and root may");
        if !self.uids.is_empty() {
            rule.push_str(&format!(", and by --allow-uid {}", listed(&self.uids)));
        }
        if !self.gids.is_empty() {
            rule.push_str(&format!(", and by --allow-gid {}", listed(&self.gids)));
        }
        rule
    }

    /// Mode of the socket: when others may attach anyone can connect, and this rule decides.
    pub(crate) fn socket_mode(&self) -> u32 {
        if self.is_private() { 0o600 } else { 0o666 }
    }

    /// Mode of the manifest.
    pub(crate) fn manifest_mode(&self) -> u32 {
        if self.is_private() { 0o600 } else { 0o644 }
    }

    fn is_private(&self) -> bool {
        self.uids.is_empty() && self.gids.is_empty()
    }
}

fn listed(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(uid: u32, gid: u32) -> Peer {
        Peer { pid: 1, uid, gid }
    }

    #[test]
    fn only_the_own_user_and_root_may_by_default() {
        let access = Access::default();
        assert!(access.allows(1000, peer(1000, 5)));
        assert!(access.allows(1000, peer(0, 0)));
        assert!(!access.allows(1000, peer(1001, 1000)));
        assert_eq!((access.socket_mode(), access.manifest_mode()), (0o600, 0o600));
    }

    #[test]
    fn listed_users_and_groups_may_attach_but_not_shut_down() {
        let access = Access { uids: vec![7], gids: vec![9] };
        assert!(access.allows(1000, peer(7, 1)));
        assert!(access.allows(1000, peer(8, 9)));
        assert!(!access.allows(1000, peer(9, 7)));
        assert!(!access.administers(1000, peer(7, 9)));
        assert_eq!(access.rule(1000), "uid 1000 and root may, and by --allow-uid 7, and by --allow-gid 9");
        assert_eq!((access.socket_mode(), access.manifest_mode()), (0o666, 0o644));
    }
}
