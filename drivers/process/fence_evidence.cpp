#include "drivers/process/fence_evidence.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/fib_rules.h>
#include <linux/nsfs.h>
#include <linux/rtnetlink.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "drivers/process/network_namespace.hpp"

namespace openshell::drivers::process {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr std::array<const char*, 7> kNamespaces = {"cgroup", "ipc", "mnt", "net", "pid", "user", "uts"};
constexpr std::uint32_t kTableLocal = 255;
constexpr std::uint32_t kArpLoopback = 772;

absl::StatusOr<std::map<std::string, NamespaceId>> namespaces_of(const std::string& process) {
  std::map<std::string, NamespaceId> found;
  for (const char* name : kNamespaces) {
    struct stat info {};
    if (stat(("/proc/" + process + "/ns/" + name).c_str(), &info) != 0)
      return system_error(std::string("looking at namespace ") + name + " of process " + process);
    found[name] = {info.st_dev, info.st_ino};
  }
  return found;
}

absl::StatusOr<std::uint32_t> namespace_owner(const std::string& process) {
  const Descriptor space{open(("/proc/" + process + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC)};
  uid_t owner = 0;
  if (!space || ioctl(space.get(), NS_GET_OWNER_UID, &owner) != 0)
    return system_error("asking for the owner of the user namespace of process " + process);
  return owner;
}

absl::Status read_status(const std::string& process, FenceFacts& facts) {
  std::ifstream file{"/proc/" + process + "/status"};
  if (!file) return absl::NotFoundError("process " + process + " has ended");
  const std::map<std::string, int> sets{{"CapInh:", 0}, {"CapPrm:", 1}, {"CapEff:", 2}, {"CapBnd:", 3}, {"CapAmb:", 4}};
  std::size_t seen = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words{line};
    std::string key;
    words >> key;
    if (key == "Uid:") {
      for (std::uint32_t& id : facts.uids) words >> id;
    } else if (key == "Gid:") {
      for (std::uint32_t& id : facts.gids) words >> id;
    } else if (key == "Groups:") {
      for (std::uint32_t id; words >> id;) facts.groups.push_back(id);
    } else if (key == "NoNewPrivs:") {
      words >> facts.no_new_privs;
    } else if (const auto set = sets.find(key); set != sets.end()) {
      words >> std::hex >> facts.capabilities[static_cast<std::size_t>(set->second)] >> std::dec;
      ++seen;
    }
  }
  return seen == sets.size() ? absl::OkStatus() : absl::InternalError("/proc/<pid>/status shows no capabilities");
}

std::vector<std::string> held_namespaces(const std::map<std::string, NamespaceId>& namespaces,
                                         const std::map<std::string, NamespaceId>& own, pid_t monitor) {
  std::set<std::string> wanted;
  for (const auto& [name, id] : namespaces) {
    if (!(own.at(name) == id)) wanted.insert(name + ":[" + std::to_string(id.inode) + "]");
  }
  std::vector<std::string> held;
  for (const std::string& process : {std::string("self"), std::to_string(monitor)}) {
    for (const std::string& link : descriptor_links(process)) {
      if (wanted.count(link) != 0) held.push_back(process + " " + link);
    }
  }
  return held;
}

// --- judging
// -------------------------------------------------------------------------------------------------------------------------------

using Check = absl::Status;
Check failed(const std::string& what) { return absl::FailedPreconditionError(what); }

Check check_namespace(const FenceFacts& facts, const std::string& name) {
  const auto inside = facts.namespaces.find(name), outside = facts.own_namespaces.find(name);
  if (inside == facts.namespaces.end() || outside == facts.own_namespaces.end()) return failed("namespace " + name + " is unknown");
  if (inside->second == outside->second) return failed("namespace " + name + " is the host's");
  return absl::OkStatus();
}

Check check_links(const NetworkFacts& network) {
  if (network.links.size() != 1) return failed(std::to_string(network.links.size()) + " links instead of lo alone");
  const LinkFact& link = network.links.front();
  if (link.name != "lo" || link.index != 1 || link.type != kArpLoopback) return failed("link " + link.name + " is not lo");
  return absl::OkStatus();
}

Check check_addresses(const NetworkFacts& network, bool ipv6) {
  std::vector<std::string> wanted{"127.0.0.1/8", "192.0.2.1/32"};
  if (ipv6) wanted.insert(wanted.end(), {"2001:db8::1/128", "::1/128"});
  std::vector<std::string> found;
  for (const AddressFact& address : network.addresses)
    found.push_back(address.address + "/" + std::to_string(address.prefix) + (address.index == 1 ? "" : " off lo"));
  std::sort(wanted.begin(), wanted.end());
  std::sort(found.begin(), found.end());
  if (found == wanted) return absl::OkStatus();
  std::string all;
  for (const std::string& address : found) all += " " + address;
  return failed("addresses are" + all);
}

// The kernel's own entries for our addresses, the local defaults, and nothing through a gateway or off lo.
Check check_routes(const NetworkFacts& network) {
  const std::set<std::string> local{"127.0.0.0/8", "127.0.0.1/32", "127.255.255.255/32", "192.0.2.1/32", "::1/128", "2001:db8::1/128",
                                    "/0"};
  const std::set<std::string> main{"::1/128", "2001:db8::1/128"};
  for (const RouteFact& route : network.routes) {
    const std::string destination = route.destination + "/" + std::to_string(route.prefix);
    const bool reject = route.type == RTN_UNREACHABLE || route.type == RTN_BLACKHOLE || route.type == RTN_PROHIBIT;
    if (reject) continue;
    const bool in_local = route.table == kTableLocal && local.count(destination) != 0;
    // IPv6 keeps the kernel's entry of an address in the main table too.
    const bool in_main = route.ipv6 && route.table == RT_TABLE_MAIN && route.protocol == RTPROT_KERNEL && main.count(destination) != 0;
    if (route.gateway || route.out_index != 1 || (!in_local && !in_main))
      return failed("route " + destination + " in table " + std::to_string(route.table));
  }
  return absl::OkStatus();
}

// The kernel's own rules, ours that lead to the local table, and refusals, which open nothing.
Check check_rules(const NetworkFacts& network) {
  for (const RuleFact& rule : network.rules) {
    const bool refuses = rule.action == FR_ACT_UNREACHABLE || rule.action == FR_ACT_PROHIBIT || rule.action == FR_ACT_BLACKHOLE;
    const bool local = rule.action == FR_ACT_TO_TBL && rule.table == kTableLocal;
    const bool kernels = rule.action == FR_ACT_TO_TBL && !rule.selective && (rule.table == RT_TABLE_MAIN || rule.table == RT_TABLE_DEFAULT);
    if (!refuses && !local && !kernels) return failed("policy rule with priority " + std::to_string(rule.priority));
  }
  return absl::OkStatus();
}

Check check_default_deny(const FenceFacts& facts, const FenceExpectation&) {
  if (auto status = check_namespace(facts, "net"); !status.ok()) return status;
  for (const NetworkFacts* network : {&facts.with_launcher, &facts.without_launcher}) {
    for (const Check& check :
         {check_links(*network), check_addresses(*network, facts.ipv6), check_routes(*network), check_rules(*network)}) {
      if (!check.ok()) return check;
    }
  }
  return absl::OkStatus();
}

Check check_descriptors(const FenceFacts& facts) {
  std::size_t pipes = 0, nulls = 0;
  for (const std::string& link : facts.without_launcher.descriptors) {
    pipes += link.compare(0, 6, "pipe:[") == 0;
    nulls += link == "/dev/null";
  }
  // stdin is /dev/null, stdout and stderr lead to the monitor, and the gate is a pipe.
  if (nulls == 1 && pipes == 3 && facts.without_launcher.descriptors.size() == 4) return absl::OkStatus();
  std::string all;
  for (const std::string& link : facts.without_launcher.descriptors) all += " " + link;
  return failed("PID 1 holds" + all);
}

Check check_devices(const FenceFacts& facts) {
  const std::set<std::string> allowed{"null",  "zero",   "full",   "random", "urandom", "tty", "fd",
                                      "stdin", "stdout", "stderr", "ptmx",   "pts",     "shm"};
  for (const std::string& device : facts.devices) {
    if (allowed.count(device) == 0) return failed("/dev/" + device + " exists");
  }
  return facts.devices.size() == allowed.size() ? absl::OkStatus() : failed("/dev is not as planned");
}

Check check_identity(const FenceFacts& facts, const FenceExpectation& expected) {
  for (const std::uint32_t uid : facts.uids) {
    if (uid != expected.kernel_uid || uid == 0) return failed("PID 1 has uid " + std::to_string(uid));
  }
  for (const std::uint32_t gid : facts.gids) {
    if (gid != expected.kernel_gid || gid == 0) return failed("PID 1 has gid " + std::to_string(gid));
  }
  std::vector<std::uint32_t> groups = facts.groups;
  std::sort(groups.begin(), groups.end());
  if (facts.mode != LaunchMode::kSingleId && groups != expected.kernel_groups)
    return failed("PID 1 has other supplementary groups than the identity");
  if (!facts.no_new_privs) return failed("no_new_privs is not set");
  for (const std::uint64_t set : facts.capabilities) {
    if (set != 0) return failed("PID 1 holds capabilities");
  }
  if (facts.user_namespace_owner != expected.namespace_owner)
    return failed("the user namespace belongs to uid " + std::to_string(facts.user_namespace_owner));
  return absl::OkStatus();
}

Check check_no_unmanaged_path(const FenceFacts& facts, const FenceExpectation& expected) {
  for (const char* name : {"mnt", "ipc", "pid", "uts", "cgroup", "user"}) {
    if (auto status = check_namespace(facts, name); !status.ok()) return status;
  }
  for (const Check& check : {check_links(facts.without_launcher), check_descriptors(facts), compare_mounts(expected.mounts, facts.mounts),
                             check_identity(facts, expected), check_devices(facts)}) {
    if (!check.ok()) return check;
  }
  return absl::OkStatus();
}

bool refusal(const ProbeResult& probe) { return probe.error == ENETUNREACH || probe.error == ECONNREFUSED; }

Check check_revocation(const FenceFacts& facts, const FenceExpectation&) {
  if (facts.supervisor_exists) return failed("a supervisor exists already");
  for (const NetworkFacts* network : {&facts.with_launcher, &facts.without_launcher}) {
    if (network->probes.empty()) return failed("nothing was probed");
    for (const ProbeResult& probe : network->probes) {
      // A datagram that nobody takes may be sent without an error; the listener outside decides.
      const bool sent = probe.error == 0 && probe.what.compare(0, 4, "udp ") == 0;
      if (!refusal(probe) && !sent) return failed("probe " + probe.what + " ended with errno " + std::to_string(probe.error));
    }
  }
  if (!facts.outside_seen.empty()) return failed("outside listener " + facts.outside_seen.front() + " was reached");
  return absl::OkStatus();
}

Check check_controller_loss(const FenceFacts& facts, const FenceExpectation&) {
  if (!facts.held_namespaces.empty()) return failed("a namespace of the sandbox is held by " + facts.held_namespaces.front());
  return absl::OkStatus();
}

// --- writing down
// --------------------------------------------------------------------------------------------------------------------------

json::value sorted(const json::value& value) {
  if (const auto* list = value.if_array()) {
    json::array copy;
    for (const json::value& item : *list) copy.push_back(sorted(item));
    return copy;
  }
  const auto* object = value.if_object();
  if (object == nullptr) return value;
  std::map<std::string, json::value> ordered;
  for (const auto& [key, item] : *object) ordered.emplace(std::string(key), sorted(item));
  json::object copy;
  for (auto& [key, item] : ordered) copy.emplace(key, std::move(item));
  return copy;
}

json::value network_json(const NetworkFacts& network) {
  json::array links, addresses, routes, rules, probes;
  for (const LinkFact& l : network.links) links.push_back({{"index", l.index}, {"name", l.name}, {"type", l.type}, {"up", l.up}});
  for (const AddressFact& a : network.addresses) addresses.push_back(json::value(a.address + "/" + std::to_string(a.prefix)));
  for (const RouteFact& r : network.routes) {
    routes.push_back(
        {{"destination", r.destination + "/" + std::to_string(r.prefix)}, {"out", r.out_index}, {"table", r.table}, {"type", r.type}});
  }
  for (const RuleFact& r : network.rules) rules.push_back({{"action", r.action}, {"priority", r.priority}, {"table", r.table}});
  for (const ProbeResult& p : network.probes) probes.push_back({{"errno", p.error}, {"what", p.what}});
  return {{"links", links}, {"addresses", addresses}, {"routes", routes}, {"rules", rules}, {"probes", probes}};
}

template <class List>
json::array array_of(const List& list) {
  json::array array;
  for (const auto& item : list) array.emplace_back(json::value_from(item));
  return array;
}

}  // namespace

bool all_refused(const NetworkFacts& network) { return std::all_of(network.probes.begin(), network.probes.end(), refusal); }

absl::StatusOr<FenceFacts> collect_facts(const ProcessMark& init, pid_t monitor) {
  FenceFacts facts;
  facts.init = init;
  const std::string process = std::to_string(init.pid);
  auto boot = boot_id();
  if (!boot.ok()) return boot.status();
  facts.boot_id = *boot;
  facts.ipv6 = kernel_has_ipv6();
  auto inside = namespaces_of(process), own = namespaces_of("self");
  if (!inside.ok()) return inside.status();
  if (!own.ok()) return own.status();
  facts.namespaces = std::move(*inside);
  facts.own_namespaces = std::move(*own);
  const auto owner = namespace_owner(process);
  if (!owner.ok()) return owner.status();
  facts.user_namespace_owner = *owner;
  if (auto status = read_status(process, facts); !status.ok()) return status;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc/" + process + "/root/dev", error))
    facts.devices.push_back(entry.path().filename().string());
  if (error) return absl::FailedPreconditionError("looking into /dev of PID 1: " + error.message());
  std::sort(facts.devices.begin(), facts.devices.end());
  auto mounts = read_mountinfo("/proc/" + process + "/mountinfo");
  if (!mounts.ok()) return mounts.status();
  facts.mounts = std::move(*mounts);
  facts.held_namespaces = held_namespaces(facts.namespaces, facts.own_namespaces, monitor);
  // Last, so that all of the above is about this process and no later one with its number.
  const auto again = mark_of(init.pid);
  if (!again.ok() || !(*again == init)) return absl::FailedPreconditionError("PID 1 ended while it was looked at");
  return facts;
}

absl::Status confirm_unchanged(const FenceFacts& before, const FenceExpectation& expected) {
  const std::string process = std::to_string(before.init.pid);
  FenceFacts now;
  now.mode = before.mode;
  auto spaces = namespaces_of(process);
  auto owner = namespace_owner(process);
  auto mounts = read_mountinfo("/proc/" + process + "/mountinfo");
  const absl::Status read = read_status(process, now);
  const auto mark = mark_of(before.init.pid);
  if (!mark.ok() || !(*mark == before.init)) return absl::OkStatus();
  if (!spaces.ok() || !owner.ok() || !mounts.ok() || !read.ok()) {
    const auto handle = open_process(before.init);
    if (!handle.ok() || has_ended(handle->get())) return absl::OkStatus();
    return failed("the evidence can not be read again after the start");
  }
  now.user_namespace_owner = *owner;
  if (*spaces != before.namespaces) return failed("PID 1 is in other namespaces than before its start");
  if (auto status = check_identity(now, expected); !status.ok()) return status;
  return compare_mounts(expected.mounts, *mounts);
}

absl::StatusOr<std::vector<std::string>> judge(const FenceFacts& facts, const FenceExpectation& expected) {
  using Judge = Check (*)(const FenceFacts&, const FenceExpectation&);
  constexpr std::array<Judge, 4> kJudges = {check_default_deny, check_no_unmanaged_path, check_revocation, check_controller_loss};
  std::vector<std::string> established;
  for (std::size_t i = 0; i < kJudges.size(); ++i) {
    const std::string name{boundary::kFenceGuarantees[i]};
    if (const Check check = kJudges[i](facts, expected); !check.ok()) return failed(name + ": " + std::string(check.message()));
    established.push_back(name);
  }
  return established;
}

std::string native_evidence(const FenceFacts& facts, const FenceExpectation& expected) {
  json::object namespaces;
  for (const auto& [name, id] : facts.namespaces) namespaces[name] = {{"device", id.device}, {"inode", id.inode}};
  json::array mounts, capabilities;
  for (const Mount& m : facts.mounts) {
    mounts.push_back(
        {{"at", m.mount_point}, {"root", m.root}, {"type", m.type}, {"ro", m.read_only}, {"nosuid", m.no_suid}, {"nodev", m.no_dev}});
  }
  for (const std::uint64_t set : facts.capabilities) capabilities.emplace_back(set);
  const json::value native = {{"fence_mode", to_string(facts.mode).data()},
                              {"generation", facts.generation},
                              {"init", {{"pid", facts.init.pid}, {"start", facts.init.start_ticks}}},
                              {"boot_id", facts.boot_id},
                              {"ipv6", facts.ipv6},
                              {"namespaces", namespaces},
                              {"user_namespace_owner", facts.user_namespace_owner},
                              {"kernel_uids", array_of(facts.uids)},
                              {"kernel_gids", array_of(facts.gids)},
                              {"kernel_groups", array_of(facts.groups)},
                              {"capabilities", capabilities},
                              {"no_new_privs", facts.no_new_privs},
                              {"descriptors", array_of(facts.without_launcher.descriptors)},
                              {"devices", array_of(facts.devices)},
                              {"mounts", mounts},
                              {"network_with_launcher", network_json(facts.with_launcher)},
                              {"network", network_json(facts.without_launcher)},
                              {"outside_seen", array_of(facts.outside_seen)}};
  const json::value all = {
      {"driver", "process"},
      {"native", native},
      {"schema", 1},
      {"workload", {{"gid", expected.seen_gid}, {"groups", array_of(expected.seen_groups)}, {"uid", expected.seen_uid}}}};
  return json::serialize(sorted(all));
}

}  // namespace openshell::drivers::process
