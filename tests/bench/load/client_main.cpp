// The load client that runs natively and inside the sandbox. `bench_client VERB NAME=VALUE...`:
//   requests url= count= warmup= threads= fresh=0|1 proxy= ca=   latency of GETs
//   download url= count= proxy= ca=                              throughput of bodies
//   bulk     host= port= bytes=                                  throughput of a raw stream of the load server
//   connects host= port= count= warmup= | own=1                  connect() alone; own: to a listener of this very process
//   hold     host= port= count= [url=]                           opens connections, says so, ends with stdin; url: one GET on each
//   flips    host= port= seconds=                                tries connect() every 2 ms, tells when the outcome changes
#include <arpa/inet.h>
#include <netinet/in.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <thread>

#include "tests/bench/load/connection.hpp"
#include "tests/bench/load/samples.hpp"

namespace openshell::bench {
namespace {

class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 2; i < argc; ++i) {
      const std::string word = argv[i];
      const auto equals = word.find('=');
      if (equals == std::string::npos) fail("not NAME=VALUE: " + word);
      values_[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }
  [[nodiscard]] long number(const std::string& name, long otherwise) const {
    const std::string value = text(name);
    return value.empty() ? otherwise : std::stol(value);
  }

 private:
  std::map<std::string, std::string> values_;
};

int requests(const Options& options) {
  const Target target = resolve(parse_url(options.text("url")), options.text("proxy"));
  const auto context = target.url.tls ? client_context(options.text("ca")) : nullptr;
  const bool fresh = options.number("fresh", 0) != 0;
  const auto threads = static_cast<std::size_t>(options.number("threads", 1));
  const auto each = options.number("count", 1000) / static_cast<long>(threads), warmup = options.number("warmup", 50);
  const std::string text = request_text(target, !fresh);
  std::vector<std::vector<double>> values(threads);
  std::atomic<std::size_t> warm{0};
  std::atomic<Clock::rep> first{0};
  const auto work = [&](std::vector<double>& mine) {
    auto kept = fresh ? nullptr : std::make_unique<Connection>(target, context.get());
    const auto one = [&] {
      if (fresh) {
        Connection connection{target, context.get()};
        connection.get(text);
      } else {
        kept->get(text);
      }
    };
    for (long i = 0; i < warmup; ++i) one();
    if (++warm == threads) {
      first = Clock::now().time_since_epoch().count();
      warm.notify_all();
    }
    for (std::size_t seen = warm; seen < threads; seen = warm) warm.wait(seen);
    mine.reserve(static_cast<std::size_t>(each));
    for (long i = 0; i < each; ++i) {
      const auto start = Clock::now();
      one();
      mine.push_back(microseconds(Clock::now() - start));
    }
  };
  std::vector<std::thread> running;
  for (auto& mine : values) running.emplace_back(work, std::ref(mine));
  for (auto& thread : running) thread.join();
  const auto wall = Clock::now().time_since_epoch() - Clock::duration{first.load()};
  std::vector<double> all;
  for (const auto& mine : values) all.insert(all.end(), mine.begin(), mine.end());
  report(all, wall);
  return 0;
}

void report_bytes(std::uint64_t bytes, Clock::duration wall) {
  std::printf("{\"mib_per_s\": %.1f}\n", static_cast<double>(bytes) / 1048576 / std::chrono::duration<double>(wall).count());
}

int download(const Options& options) {
  const Target target = resolve(parse_url(options.text("url")), options.text("proxy"));
  const auto context = target.url.tls ? client_context(options.text("ca")) : nullptr;
  Connection connection{target, context.get()};
  const std::string text = request_text(target, true);
  connection.get(text);  // warm: windows have grown
  const auto start = Clock::now();
  std::uint64_t bytes = 0;
  for (long i = 0; i < options.number("count", 1); ++i) bytes += connection.get(text);
  report_bytes(bytes, Clock::now() - start);
  return 0;
}

Target raw_target(const Options& options) { return resolve(Url{false, options.text("host"), options.text("port"), {}}, {}); }

// A zero byte first: nothing that could be the start of TLS or HTTP.
int bulk(const Options& options) {
  const Target target = raw_target(options);
  Connection connection{target, nullptr};
  const auto wanted = static_cast<std::uint64_t>(options.number("bytes", 1 << 30));
  char order[9] = {};
  for (int i = 0; i < 8; ++i) order[1 + i] = static_cast<char>(wanted >> (8 * i));
  std::vector<char> sink(256 * 1024);
  const auto start = Clock::now();
  connection.send_all({order, sizeof order});
  std::uint64_t bytes = 0;
  while (bytes < wanted) {
    const std::size_t got = connection.receive(sink.data(), sink.size());
    if (got == 0) fail("the stream ended early");
    bytes += got;
  }
  report_bytes(bytes, Clock::now() - start);
  return 0;
}

int open_socket() { return socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); }

void reset_and_close(int fd) {
  const linger abort{1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &abort, sizeof abort);
  close(fd);
}

// Listens on loopback and takes connections off for ever.
Target own_listener() {
  const int listener = open_socket();
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(listener, 512) != 0) fail("no listener of my own");
  getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
  std::thread{[listener] {
    for (;;) {
      const int taken = accept(listener, nullptr, nullptr);
      if (taken >= 0) close(taken);
    }
  }}.detach();
  Target target;
  std::memcpy(&target.address, &address, size);
  target.address_size = size;
  return target;
}

int connects(const Options& options) {
  const Target target = options.number("own", 0) != 0 ? own_listener() : raw_target(options);
  std::vector<double> values;
  const long warmup = options.number("warmup", 100);
  auto begin = Clock::now();
  for (long i = 0; i < warmup + options.number("count", 1000); ++i) {
    if (i == warmup) begin = Clock::now();
    const int fd = open_socket();
    const auto start = Clock::now();
    if (connect(fd, reinterpret_cast<const sockaddr*>(&target.address), target.address_size) != 0)
      fail(std::string("connect: ") + std::strerror(errno));
    const auto took = Clock::now() - start;
    if (i >= warmup) values.push_back(microseconds(took));
    reset_and_close(fd);
  }
  report(values, Clock::now() - begin);
  return 0;
}

int hold(const Options& options) {
  const std::string url = options.text("url");
  const Target target = url.empty() ? raw_target(options) : resolve(parse_url(url), {});
  const auto context = target.url.tls ? client_context({}) : nullptr;
  std::vector<std::unique_ptr<Connection>> held;
  for (long i = 0; i < options.number("count", 100); ++i) {
    held.push_back(std::make_unique<Connection>(target, context.get()));
    if (url.empty()) {
      held.back()->send_all({"", 1});  // a zero byte: nothing that is waited for to become TLS or HTTP
    } else {
      held.back()->get(request_text(target, true));
    }
  }
  std::printf("held\n");
  std::fflush(stdout);
  char byte;
  while (read(0, &byte, 1) > 0) {
  }
  return 0;
}

long long wall_nanoseconds() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

// `<before> <after> <errno>` in nanoseconds of the wall clock, which the sandbox shares with the host, at each change of the outcome.
int flips(const Options& options) {
  const auto end = Clock::now() + std::chrono::seconds{options.number("seconds", 10)};
  int last = -1;
  while (Clock::now() < end) {
    const Target target = raw_target(options);  // each time: what an answer to a name may be used for is fixed when it is given
    const int fd = open_socket();
    const long long before = wall_nanoseconds();
    const int outcome = connect(fd, reinterpret_cast<const sockaddr*>(&target.address), target.address_size) == 0 ? 0 : errno;
    if (outcome != last) {
      std::printf("%lld %lld %d\n", before, wall_nanoseconds(), outcome);
      std::fflush(stdout);
      last = outcome;
    }
    reset_and_close(fd);
    usleep(2000);
  }
  return 0;
}

}  // namespace
}  // namespace openshell::bench

int main(int argc, char** argv) {
  using namespace openshell::bench;
  const std::map<std::string, int (*)(const Options&)> verbs{{"requests", requests}, {"download", download}, {"bulk", bulk},
                                                             {"connects", connects}, {"hold", hold},         {"flips", flips}};
  const auto verb = argc > 1 ? verbs.find(argv[1]) : verbs.end();
  if (verb == verbs.end()) fail("usage: bench_client requests|download|bulk|connects|hold|flips NAME=VALUE...");
  return verb->second(Options{argc, argv});
}
