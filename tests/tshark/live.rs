//! The same traffic captured by flowtrace and by tcpdump at the same time.

use std::path::Path;

use super::fields::{Fields, assert_same, of_trace, of_tshark};
use super::lab_of_hosts::{need_lab, run};
use super::support::{Scratch, need_program, skip};

/// Two ranks exchange messages while both programs capture `$INTERFACE` of host 1. A datagram to a closed
/// port makes an error come back.
const SCRIPT: &str = r#"
ip netns exec h1 "$FLOWTRACE" capture -i $INTERFACE -o ours.db 2> ours.log & ours=$!
ip netns exec h1 tcpdump -n --immediate-mode -U -s 128 -i $INTERFACE -w theirs.pcap 2> theirs.log & theirs=$!
until grep -q capturing ours.log && grep -q listening theirs.log; do sleep 0.01; done
ip netns exec h$SECOND "$PATTERNS" --rank 0 --hosts $ADDRESSES $PATTERN > /dev/null & rank=$!
ip netns exec h1 "$PATTERNS" --rank 1 --hosts $ADDRESSES $PATTERN > /dev/null
wait $rank
ip netns exec h1 bash -c "echo unwanted > /dev/udp/${ADDRESSES%,*}/9" || true
sleep 1
kill -TERM $ours $theirs
wait $ours; wait $theirs || true
cat ours.log theirs.log >&2
"#;

/// The fields that both captures must have in common. Left out are the time stamp, the direction, which only
/// one of them has, and packets that the system sends by itself when an interface comes up (neighbours,
/// groups), because one capture may have begun before them.
fn alike(mut packets: Vec<Fields>) -> Vec<Fields> {
    const IGMP: &str = "ip-2";
    packets.retain(|fields| fields.proto != "icmpv6" && fields.proto != IGMP);
    for fields in &mut packets {
        fields.t_ns = 0;
        fields.way = 0;
    }
    packets.sort();
    packets
}

fn compare(name: &str, before: &str, variables: &str) -> Option<Vec<Fields>> {
    if !(need_program("tshark") && need_program("tcpdump") && need_lab()) {
        return None;
    }
    let scratch = Scratch::new();
    let script = format!("{before}\n{variables}\n{SCRIPT}");
    let output = run(&scratch, 2, &script);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("Unknown device type") || error.contains("not supported") {
        // A kernel may be built without the module.
        skip(&format!("{name}: {error}"));
        return None;
    }
    assert!(output.status.success(), "{name}: {error}");
    let of = |name: &str| -> std::path::PathBuf { Path::new(&*scratch).join(name) };
    let ours = alike(of_trace(&of("ours.db")));
    let theirs = alike(of_tshark(&of("theirs.pcap")));
    assert!(theirs.len() > 50, "{name}: {error}");
    assert_same(name, &ours, &theirs);
    Some(ours)
}

const SMALL: &str = "PATTERN='--bytes 30000 --iterations 20 --compute-us 10'";

#[test]
fn a_network_card_without_offload() {
    let off = "ip link set dev port1 gso_max_segs 1; ip -n h1 link set dev eth0 gso_max_segs 1
        ip link set dev port2 gso_max_segs 1; ip -n h2 link set dev eth0 gso_max_segs 1";
    let variables = format!("INTERFACE=eth0; SECOND=2; ADDRESSES=10.9.0.2,10.9.0.1; {SMALL}");
    compare("veth", off, &variables);
}

#[test]
fn segmentation_left_to_the_device() {
    let variables = "INTERFACE=eth0; SECOND=2; ADDRESSES=10.9.0.2,10.9.0.1
        PATTERN='--bytes 400000 --iterations 10 --compute-us 10'";
    if let Some(packets) = compare("offload", "", variables) {
        let large = |fields: &&Fields| fields.wire_bytes > 1514;
        assert!(packets.iter().filter(large).count() > 10);
    }
}

#[test]
fn version_6_on_a_network_card() {
    let addresses = "for i in 1 2; do ip -n h$i addr add fd09::$i/64 dev eth0 nodad; done";
    let variables = format!("INTERFACE=eth0; SECOND=2; ADDRESSES=fd09::2,fd09::1; {SMALL}");
    compare("veth-6", addresses, &variables);
}

#[test]
fn a_tagged_network() {
    let tags = "for i in 1 2; do
          ip -n h$i link add link eth0 name eth0.5 type vlan id 5
          ip -n h$i addr add 10.5.0.$i/24 dev eth0.5; ip -n h$i link set eth0.5 up
        done";
    let variables = format!("INTERFACE=eth0; SECOND=2; ADDRESSES=10.5.0.2,10.5.0.1; {SMALL}");
    if let Some(packets) = compare("vlan", tags, &variables) {
        assert!(packets.iter().all(|fields| fields.has_tag));
    }
}

#[test]
fn loopback() {
    for (name, addresses) in [("lo", "127.0.0.1,127.0.0.1"), ("lo-6", "::1,::1")] {
        let variables = format!("INTERFACE=lo; SECOND=1; ADDRESSES={addresses}; {SMALL}");
        compare(name, "", &variables);
    }
}
