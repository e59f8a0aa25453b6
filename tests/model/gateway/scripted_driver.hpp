// A compute driver that does what the test says and remembers what it was asked.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "drivers/driver.hpp"

namespace openshell::test {

class ScriptedDriver : public drivers::ComputeDriver {
 public:
  drivers::Capabilities capabilities() const override {
    drivers::Capabilities out;
    out.driver_name = "scripted";
    out.driver_version = "1";
    out.gateway_manages_lifecycle = true;
    return out;
  }
  absl::Status validate(const drivers::SandboxSpec&) override { return say("validate", {}, validate_answer); }
  absl::StatusOr<drivers::Observation> get(const SandboxId& id) override {
    std::lock_guard lock{mutex};
    const auto it = sandboxes.find(id.str());
    if (it == sandboxes.end()) return absl::NotFoundError("no such sandbox");
    return it->second;
  }
  absl::StatusOr<std::vector<drivers::Observation>> list() override {
    std::lock_guard lock{mutex};
    std::vector<drivers::Observation> out;
    for (const auto& [id, observed] : sandboxes) out.push_back(observed);
    return out;
  }
  absl::StatusOr<std::string> create(const drivers::SandboxSpec& spec, const drivers::LaunchAuthentication& launch) override {
    if (auto status = say("create", spec.id, create_answer); !status.ok()) return status;
    run(spec.id, launch);
    return "runtime-" + spec.id.str();
  }
  absl::StatusOr<std::string> start(const drivers::SandboxSpec& spec, const drivers::LaunchAuthentication& launch,
                                    std::string_view) override {
    if (auto status = say("start", spec.id, start_answer); !status.ok()) return status;
    {
      std::lock_guard lock{mutex};
      if (!sandboxes.contains(spec.id.str())) return absl::NotFoundError("no such sandbox");
    }
    run(spec.id, launch);
    return "runtime-" + spec.id.str();
  }
  absl::Status stop(const SandboxId& id) override {
    if (auto status = say("stop", id, stop_answer); !status.ok()) return status;
    std::lock_guard lock{mutex};
    const auto it = sandboxes.find(id.str());
    if (it != sandboxes.end()) it->second.conditions = {{"Ready", "False", "ContainerStopped", "", ""}};
    return absl::OkStatus();
  }
  absl::StatusOr<bool> remove(const SandboxId& id) override {
    if (auto status = say("remove", id, remove_answer); !status.ok()) return status;
    if (on_remove) on_remove();
    std::lock_guard lock{mutex};
    return sandboxes.erase(id.str()) > 0;
  }
  std::unique_ptr<drivers::Watch> watch(std::function<void(const drivers::WatchEvent&)> callback) override {
    std::lock_guard lock{mutex};
    watcher = std::move(callback);
    return std::make_unique<drivers::Watch>();
  }

  /// Something happened to the compute of a sandbox.
  void report(const std::string& id, const std::string& status, const std::string& reason) {
    drivers::WatchEvent event;
    std::function<void(const drivers::WatchEvent&)> to;
    {
      std::lock_guard lock{mutex};
      auto& observed = sandboxes[id];
      observed.conditions = {{"Ready", status, reason, "driver text", ""}};
      event.id = observed.id;
      event.observed = observed;
      to = watcher;
    }
    if (to) to(event);
  }
  int count(const std::string& what) {
    std::lock_guard lock{mutex};
    int n = 0;
    for (const auto& call : calls) n += call.starts_with(what) ? 1 : 0;
    return n;
  }

  std::mutex mutex;
  std::map<std::string, drivers::Observation> sandboxes;
  std::map<std::string, drivers::LaunchAuthentication> launches;
  std::vector<std::string> calls;
  absl::Status validate_answer, create_answer, start_answer, stop_answer, remove_answer;
  std::function<void()> on_remove;  ///< runs before an answer of remove
  std::function<void(const drivers::WatchEvent&)> watcher;

 private:
  absl::Status say(const std::string& what, const SandboxId& id, const absl::Status& answer) {
    std::lock_guard lock{mutex};
    calls.push_back(what + " " + id.str());
    return answer;
  }
  void run(const SandboxId& id, const drivers::LaunchAuthentication& launch) {
    std::lock_guard lock{mutex};
    auto& observed = sandboxes[id.str()];
    observed.id = id;
    observed.generation = launch.runtime_generation;
    observed.conditions = {{"Ready", "True", "BackendReady", "", ""}};
    launches[id.str()] = launch;
  }
};

}  // namespace openshell::test
