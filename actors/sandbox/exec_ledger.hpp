// Every exec id of a generation and what became of it: accepted once, run once, its status for ever. Decisions only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/sandbox/call.hpp"
#include "isolation/boundary/control.hpp"

namespace openshell::sandbox {

class ExecLedger {
 public:
  struct Limits {
    std::size_t accepted = 4'096;  ///< exec ids of a generation, failed ones included
    std::size_t retained = 64;     ///< processes whose handle (output, attachment) is kept
  };
  enum class Phase : std::uint8_t { reserved, running, exited, failed, reclaimed };
  struct Entry {
    std::string process_id;
    std::string digest;
    Phase phase = Phase::reserved;
    bool pty = false;
    std::shared_ptr<ManagedProcess> process;     ///< null while reserved, when failed or reclaimed
    std::optional<boundary::ExitStatus> status;  ///< kept when the handle is not
    std::string error;                           ///< of a failed launch
  };

  explicit ExecLedger(std::string generation) : ExecLedger{std::move(generation), Limits{}} {}
  ExecLedger(std::string generation, Limits limits) : generation_{std::move(generation)}, limits_{limits} {}

  /// What an exec request is. `start`: the id is reserved now and the process may be launched. `resume`: its process is retained and
  /// unattached.
  struct Admission {
    enum class Action : std::uint8_t { refuse, start, resume } action = Action::refuse;
    boundary::Error error{};
    std::string process_id{};
    std::string reclaimed{};  ///< process whose handle had to go for it
  };
  Admission admit(const std::string& request_id, const std::string& digest, bool pty, std::uint64_t expires_at_unix_ms,
                  std::uint64_t now_unix_ms, const std::function<bool(const Entry&)>& attached);

  void launched(const std::string& process_id, std::shared_ptr<ManagedProcess> process);
  void failed(const std::string& process_id, std::string error);
  void exited(const std::string& process_id, boundary::ExitStatus status);
  void reclaim(const std::string& process_id);

  /// "<generation>:main:0". A second main is refused.
  [[nodiscard]] std::string main_id() const { return generation_ + ":main:0"; }
  bool reserve_main();
  void forget_main();  ///< its launch failed and may be tried again

  [[nodiscard]] const Entry* find(const std::string& process_id) const;
  [[nodiscard]] std::vector<const Entry*> entries() const;  ///< sorted by process id
  [[nodiscard]] std::size_t accepted() const { return by_request_.size(); }
  [[nodiscard]] std::size_t retained() const { return retained_; }

 private:
  Entry& entry(const std::string& process_id) { return by_process_.at(process_id); }
  std::string generation_;
  Limits limits_;
  std::map<std::string, std::string> by_request_;  // request id -> process id
  std::map<std::string, Entry> by_process_;
  std::uint64_t next_number_ = 0;
  std::size_t retained_ = 0;  // execs that are reserved or hold a handle
};

}  // namespace openshell::sandbox
