#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "programs/supervisor/process_output.hpp"
#include "programs/supervisor/ssh/peer.hpp"

namespace openshell::supervisor {

/// Finds Ctrl-P Ctrl-Q in what the owner of main's input types. A Ctrl-P at the end of a piece is held back until the next one.
class DetachFilter {
 public:
  struct Result {
    std::string forward;
    bool detach = false;  ///< the two keys came; they and what follows are dropped
  };
  Result feed(std::string_view bytes);

 private:
  bool pending_ = false;
};

/// A follower of main; MainAttachment behind a seam. Same contract.
class MainFollower {
 public:
  using ReadDone = absl::AnyInvocable<void(absl::StatusOr<ProcessOutput>)>;
  using WriteDone = absl::AnyInvocable<void(absl::Status)>;
  virtual ~MainFollower() = default;
  virtual void read(ReadDone done) = 0;
  virtual absl::Status acquire_input() = 0;
  virtual void release_input() = 0;
  virtual bool owns_input() const = 0;
  virtual void write(std::string bytes, WriteDone done) = 0;
  virtual void resize(std::uint32_t columns, std::uint32_t rows) = 0;
  virtual void signal(boundary::ProcessSignal signal) = 0;
  virtual void detach() = 0;
};

/// `openshell-main`: one client at main. One client owns the input; another sees what comes and is told so. Ctrl-P Ctrl-Q detaches the
/// owner, Ctrl-C a viewer; both leave main alone. A viewer that did not ask for it becomes the owner with the first bytes it types after
/// the owner left. Any thread.
class MainPeer final : public ChannelPeer, public std::enable_shared_from_this<MainPeer> {
 public:
  static std::shared_ptr<MainPeer> make(std::unique_ptr<MainFollower> follower, bool read_only, std::string line_end);

  void read(ReadDone done) override;
  void write(std::string bytes, WriteDone done) override;
  void close_input() override;
  void resize(std::uint32_t columns, std::uint32_t rows) override;
  void signal(boundary::ProcessSignal signal) override;
  void close() override;

 private:
  MainPeer(std::unique_ptr<MainFollower> follower, bool read_only, std::string line_end)
      : follower_{std::move(follower)}, read_only_{read_only}, line_end_{std::move(line_end)} {}

  void say(const std::string& text);
  void finish(int code);
  void detach();
  void give(PeerOutput output);
  void from_main(absl::StatusOr<ProcessOutput> output);

  const std::unique_ptr<MainFollower> follower_;
  const bool read_only_;
  const std::string line_end_;
  DetachFilter filter_;  // of the one write at a time
  std::mutex mutex_;
  std::deque<PeerOutput> ready_;
  ReadDone waiting_;
  bool reading_ = false;
  bool finished_ = false;  // the end is in ready_ or was given: nothing follows
};

}  // namespace openshell::supervisor
