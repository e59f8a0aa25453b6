// A driver of a test's own: bundle, directories, launch authentication, and what the watch reports.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/process/process_driver.hpp"

namespace openshell::drivers::test {

class Host {
 public:
  /// Directories below /tmp, all removed at the end; `slots` as root.
  Host();
  ~Host();
  /// A driver on these directories; call again after `forget` for a later gateway process.
  void start();
  void forget();
  [[nodiscard]] ComputeDriver& driver() { return *driver_; }
  [[nodiscard]] ProcessDriverOptions options() const;

  /// Waits (bounded) until the sandbox has a Ready condition with this reason. Returns its message; fails the test on the bound.
  std::string wait_for(const std::string& id, const std::string& reason);
  /// Waits until the watch said that it is deleted.
  void wait_deleted(const std::string& id);

  [[nodiscard]] std::string state(const std::string& id) const { return path + "/state/sandboxes/" + id; }
  [[nodiscard]] std::string runtime(const std::string& id) const { return path + "/run/" + id; }
  /// What the stand-in wrote, once it did.
  std::string report(const std::string& id);

  std::string path;
  std::function<void(ProcessDriverOptions&)> adjust = [](ProcessDriverOptions&) {};

 private:
  std::unique_ptr<ComputeDriver> driver_;
  std::unique_ptr<Watch> watch_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<WatchEvent> events_;
};

SandboxSpec spec(const std::string& id);
LaunchAuthentication launch(const std::string& generation);
std::string read_text(const std::string& path);
/// A CA certificate that nobody uses.
std::string pki_ca();
/// `key=value` of a report.
std::string value(const std::string& report, const std::string& key);
/// Processes of the host whose command line or kernel uid belongs to a sandbox of these tests.
std::vector<int> processes_with_uid(std::uint32_t first, std::uint32_t last);
/// Pids of the `generation` file.
struct Marks {
  int init = 0, supervisor = 0, monitor = 0;
};
Marks read_marks(const std::string& state);
/// The digest that both halves carry.
std::string boundary_digest(const std::string& generation, const std::string& evidence);

}  // namespace openshell::drivers::test
