// A sandbox runtime without a sandbox: the channel's protocol over real mutual TLS on a Unix socket, with answers that a test decides.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isolation/boundary/control.hpp"
#include "isolation/boundary/framing.hpp"
#include "isolation/boundary/launch_material.hpp"

namespace openshell::supervisor::test {

class FakeBoundary {
 public:
  /// Listens on `<directory>/boundary.sock`.
  explicit FakeBoundary(const std::string& directory);
  ~FakeBoundary();

  [[nodiscard]] const boundary::Descriptor& descriptor() const { return descriptor_; }

  /// Operations in the order of arrival.
  [[nodiscard]] std::vector<std::string> operations() const;
  bool wait_for(const std::string& operation, std::size_t times = 1) const;
  [[nodiscard]] std::optional<boundary::StartAgent> started() const;
  [[nodiscard]] std::vector<boundary::Exec> execs() const;

  /// Main ends; `wait` is answered.
  void exit_main(int code);
  /// Main as `attach_process` shows it: what it writes from now on (kept for a later attachment), what it was sent, its end.
  void main_says(boundary::Channel channel, const std::string& bytes);
  void main_output_ends(int code);
  /// False: not within the patience of the tests.
  bool main_hears(const std::string& expected) const;
  /// Events of main that were taken off its hands; what it may still say before it would block is the channel's window.
  [[nodiscard]] std::size_t main_events_sent() const;
  /// Cuts main's stream; the next attachment starts at the event `first`, as a runtime that dropped the older ones does.
  void cut_main_stream(std::uint64_t first);
  /// While false the stdin of main is not read.
  std::atomic<bool> main_reads{true};

  struct OpenResult {
    boundary::OpenDecision decision = boundary::OpenDecision::mediation_unavailable;
    std::string received;  ///< what came back until the end
  };
  /// The workload opens `destination` as `binary`, sends `bytes`, ends its direction and reads to the end.
  OpenResult open(const std::string& destination, const std::string& binary, const std::string& bytes);
  /// The workload asks for the A record of `name`; the bare answer.
  std::string resolve(const std::string& name);

  static constexpr std::uint64_t kOpenerPid = 4711;  ///< of every open

  std::optional<std::string> image_policy;
  std::optional<boundary::Error> attach_error;
  std::function<void(boundary::Confirmation&)> distort;  ///< what it claims beside the truth when it confirms

  struct State;

 private:
  boundary::Descriptor descriptor_;
  std::shared_ptr<State> state_;
};

}  // namespace openshell::supervisor::test
