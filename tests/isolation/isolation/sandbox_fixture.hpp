// A real sandbox for tests: own network, pid, mount and ipc namespaces, a root of its own, another uid, no capability. The body runs as its
// PID 1, where openshell-sandbox would be. Assertions made in the body count: its failures become the test's.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <queue>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "isolation/broker.hpp"
#include "isolation/launcher.hpp"
#include "isolation/process_tree.hpp"

namespace openshell::isolation::testing {

struct FixtureOptions {
  bool anyip = true;
  bool rootless = false;  ///< namespaces in a user namespace of an unprivileged uid, mapped to itself
};

/// Runs `body` as PID 1 of a new sandbox and waits. Its EXPECTs are reported on this process's output, and fail the calling test.
void in_sandbox(const FixtureOptions& options, const std::function<void()>& body);

/// Answers opens by destination port, on a thread of its own; an allowed one is an echo server that first says "hello <port>\n".
///   10xx allow after xx ms * 10, 20xx deny after xx ms * 10, 30xx never; everything else is denied at once.
class ScriptedDecider : public OpenDecider {
 public:
  ScriptedDecider();
  ~ScriptedDecider() override;
  void attach(Broker& broker) { broker_ = &broker; }
  void stop();

  void open(OpenRequest request) override;
  void ended(OpenId id, OpenEnd why) override;

  [[nodiscard]] std::vector<OpenRequest> seen() const;
  [[nodiscard]] std::map<OpenId, OpenEnd> ends() const;
  [[nodiscard]] int failed_allows() const { return failed_allows_; }
  /// Waits until `count` opens were asked.
  bool wait_for_opens(std::size_t count, std::chrono::milliseconds limit = std::chrono::seconds{5}) const;

 private:
  struct Timed {
    std::chrono::steady_clock::time_point at;
    OpenId id;
    int port;
    bool operator<(const Timed& other) const { return at > other.at; }
  };
  void run();
  void decide(const Timed& timed);
  static void echo(FileDescriptor relay, int port);

  std::atomic<Broker*> broker_{nullptr};
  mutable std::mutex mutex_;
  mutable std::condition_variable wake_;
  std::priority_queue<Timed> queue_;
  std::vector<OpenRequest> seen_;
  std::map<OpenId, OpenEnd> ends_;
  std::atomic<int> failed_allows_{0};
  bool stop_ = false;
  std::vector<std::thread> relays_;
  std::thread thread_;
};

struct RunResult {
  ExitStatus status;
  std::string out, err;
  absl::Status launch;
};

/// Reaper, launcher, broker and decider together, as the sandbox wires them.
class Workload {
 public:
  struct Options {
    bool anyip = true;
    bool allow_killable = true;
    std::chrono::milliseconds open_timeout{30'000};
    std::vector<std::uint16_t> reserved_ports;
    unsigned receivers = 0;
    bool mediated_signals = false;  ///< as if Landlock had ABI 5
  };
  Workload() : Workload(Options{}) {}
  explicit Workload(Options options);
  ~Workload();

  /// Runs a program to its end and collects what it wrote.
  RunResult run(std::vector<std::string> arguments, std::shared_ptr<const LandlockLayer> filesystem = nullptr,
                const std::string& directory = "/tmp");
  /// Runs the probe program (`probe.c`) with these arguments.
  RunResult probe(std::vector<std::string> arguments);
  /// Starts the probe without waiting for it; its output is dropped.
  absl::StatusOr<LaunchedProcess> start_probe(std::vector<std::string> arguments);

  ChildReaper reaper;
  ScriptedDecider decider;
  LandlockFeatures landlock;
  std::unique_ptr<Launcher> launcher;
  std::unique_ptr<Broker> broker;
  ProcessTree tree;
};

std::string probe_path();

}  // namespace openshell::isolation::testing
