#include "drivers/process/launch_plan.hpp"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace openshell::drivers::process {
namespace {

static_assert(std::endian::native == std::endian::little);

// The fields of each message, named once for both directions.
template <class A>
void fields(A& a, MountStep& x) {
  a(x.kind, x.target, x.source, x.recursive, x.read_only, x.no_exec, x.devices, x.of_workload, x.mode, x.size_bytes, x.inodes);
}
template <class A>
void fields(A& a, IdMapLine& x) {
  a(x.inside, x.outside, x.count);
}
template <class A>
void fields(A& a, LaunchPlan& x) {
  a(x.version, x.mode, x.sandbox_id, x.generation, x.hostname, x.root_directory, x.state_directory, x.mounts, x.cgroup_procs, x.uid_map,
    x.gid_map, x.uid, x.gid, x.owner_uid, x.owner_gid, x.groups, x.max_processes, x.max_address_space, x.init_argv, x.init_environment,
    x.newuidmap, x.newgidmap);
}
template <class A>
void fields(A& a, OutsideListener& x) {
  a(x.ipv6, x.address, x.tcp_port, x.udp_port);
}
template <class A>
void fields(A& a, ProbeResult& x) {
  a(x.what, x.error);
}
template <class A>
void fields(A& a, LinkFact& x) {
  a(x.index, x.name, x.type, x.up);
}
template <class A>
void fields(A& a, AddressFact& x) {
  a(x.index, x.address, x.prefix);
}
template <class A>
void fields(A& a, RouteFact& x) {
  a(x.ipv6, x.destination, x.prefix, x.table, x.type, x.protocol, x.out_index, x.gateway);
}
template <class A>
void fields(A& a, RuleFact& x) {
  a(x.ipv6, x.priority, x.table, x.action, x.selective);
}
template <class A>
void fields(A& a, NetworkFacts& x) {
  a(x.links, x.addresses, x.routes, x.rules, x.probes, x.descriptors);
}
template <class A>
void fields(A& a, SupervisorPlan& x) {
  a(x.path, x.argv, x.environment, x.uid, x.gid, x.change_identity);
}
template <class A>
void fields(A& a, FileCall& x) {
  a(x.method, x.state_dir, x.runtime_dir, x.id, x.party, x.name, x.content, x.mode, x.uid, x.gid);
}

class Writer {
 public:
  template <class... T>
  void operator()(T&... values) {
    (put(values), ...);
  }
  template <class T>
  void put(T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      fields(*this, value);
    }
  }
  void put(std::string& text) {
    std::uint32_t size = static_cast<std::uint32_t>(text.size());
    put(size);
    bytes += text;
  }
  template <class T>
  void put(std::vector<T>& list) {
    std::uint32_t size = static_cast<std::uint32_t>(list.size());
    put(size);
    for (T& item : list) put(item);
  }
  std::string bytes;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_{bytes} {}
  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      get(byte);
      value = byte != 0;
    } else if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      if (!take(sizeof value)) return;
      std::memcpy(&value, bytes_.data() - sizeof value, sizeof value);
    } else {
      fields(*this, value);
    }
  }
  void get(std::string& text) {
    std::uint32_t size = 0;
    get(size);
    if (take(size)) text.assign(bytes_.data() - size, size);
  }
  template <class T>
  void get(std::vector<T>& list) {
    std::uint32_t size = 0;
    get(size);
    for (std::uint32_t i = 0; i < size && ok_; ++i) get(list.emplace_back());
  }
  [[nodiscard]] bool complete() const { return ok_ && bytes_.empty(); }

 private:
  bool take(std::size_t size) {
    ok_ = ok_ && size <= bytes_.size();
    if (ok_) bytes_.remove_prefix(size);
    return ok_;
  }
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

template <class T>
std::string encode(const T& value) {
  Writer writer;
  T copy = value;
  writer(copy);
  return std::move(writer.bytes);
}

template <class T>
absl::StatusOr<T> decode(std::string_view bytes) {
  T value{};
  Reader reader{bytes};
  reader(value);
  if (!reader.complete()) return absl::InvalidArgumentError("message between driver and monitor is damaged");
  return value;
}

template std::string encode(const LaunchPlan&);
template absl::StatusOr<LaunchPlan> decode(std::string_view);
template std::string encode(const SupervisorPlan&);
template absl::StatusOr<SupervisorPlan> decode(std::string_view);
template std::string encode(const FileCall&);
template absl::StatusOr<FileCall> decode(std::string_view);
template std::string encode(const NetworkFacts&);
template absl::StatusOr<NetworkFacts> decode(std::string_view);
template std::string encode(const std::vector<OutsideListener>&);
template absl::StatusOr<std::vector<OutsideListener>> decode(std::string_view);
template std::string encode(const std::int32_t&);
template absl::StatusOr<std::int32_t> decode(std::string_view);

absl::Status send_frame(int socket, Word word, std::string_view body) {
  if (body.size() > kMaxFrameBytes) return absl::InvalidArgumentError("message between driver and monitor is too long");
  const std::uint32_t size = static_cast<std::uint32_t>(body.size());
  std::string bytes(reinterpret_cast<const char*>(&size), sizeof size);
  bytes.push_back(static_cast<char>(word));
  bytes.append(body);
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return absl::UnavailableError("the monitor's socket is closed");
    sent += static_cast<std::size_t>(n);
  }
  return absl::OkStatus();
}

absl::StatusOr<Frame> receive_frame(int socket) {
  const auto read_all = [socket](char* data, std::size_t size) {
    for (std::size_t got = 0; got < size;) {
      const ssize_t n = read(socket, data + got, size - got);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      got += static_cast<std::size_t>(n);
    }
    return true;
  };
  char head[5];
  if (!read_all(head, sizeof head)) return absl::UnavailableError("the monitor's socket is closed");
  std::uint32_t size = 0;
  std::memcpy(&size, head, sizeof size);
  if (size > kMaxFrameBytes) return absl::InvalidArgumentError("message between driver and monitor is too long");
  Frame frame{static_cast<Word>(head[4]), std::string(size, '\0')};
  if (!read_all(frame.body.data(), size)) return absl::UnavailableError("the monitor's socket is closed");
  return frame;
}

}  // namespace openshell::drivers::process
