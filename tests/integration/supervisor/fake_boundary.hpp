// A sandbox runtime without a sandbox: the channel's protocol over real mutual TLS on a Unix socket, with answers that a test decides.
#pragma once

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

  struct State;

 private:
  boundary::Descriptor descriptor_;
  std::shared_ptr<State> state_;
};

}  // namespace openshell::supervisor::test
