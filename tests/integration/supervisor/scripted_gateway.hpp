// A gateway that answers as the test says and remembers what it was told. Plaintext on a loopback port of its own.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "exec.pb.h"
#include "openshell.pb.h"

namespace openshell::supervisor::test {

class ScriptedGateway {
 public:
  ScriptedGateway();
  ~ScriptedGateway();

  [[nodiscard]] std::string endpoint() const;

  /// What a poll gets from now on; the version says which one it is.
  void set_policy(const sandbox::v1::SandboxPolicy& policy, std::uint32_t version);
  void set_setting(const std::string& key, const std::string& value);
  void set_environment(const std::string& key, const std::string& value);
  /// Over the session; false where there is none.
  bool nudge(const std::string& update_id);

  /// Waiting for what the supervisor says; false when it does not come in time.
  bool wait_for_status(std::uint32_t version, v1::PolicyStatus status) const;
  bool wait_for_session() const;
  bool wait_for_applied(const std::string& update_id) const;
  bool wait_for_main_exit(int code) const;
  bool wait_for_log(const std::string& text) const;
  bool wait_for_analysis(const std::string& host) const;
  bool wait_for_admission(v1::ConfigurationAdmissionState state) const;

  /// Drops the session; the supervisor is to come again.
  void drop_session();

  struct ExecOutcome {
    std::string out, err;
    std::int64_t code = -1;
    int failure = 0;  ///< Failure.Code
    std::string relay_error;
  };
  /// Opens a relay and runs one exec to its end.
  ExecOutcome exec(const std::string& command, const std::string& input);
  /// Starts one and breaks the relay as soon as it runs.
  bool exec_and_cancel(const std::string& command);

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace openshell::supervisor::test
