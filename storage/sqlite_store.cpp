#include "storage/sqlite_store.hpp"

#include <condition_variable>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "observability/text.hpp"
#include "storage/page_token.hpp"
#include "storage/sqlite_connection.hpp"
#include "storage/sqlite_room.hpp"

namespace openshell::storage {
namespace {

constexpr std::size_t kReaders = 4;
constexpr std::size_t kMaxGroup = 64;  ///< writes that share one commit: bounds how long the first of them waits

struct Job {
  Store::Work work;
  Store::Done done;
};

/// Jobs in order, for one or more threads. Closing gives what is left to the one who closes.
class JobQueue {
 public:
  /// False: closed; the job is untouched.
  bool push(Job& job) {
    const std::lock_guard lock{mutex_};
    if (closed_) return false;
    jobs_.push_back(std::move(job));
    ready_.notify_one();
    return true;
  }
  /// Waits for a job, then takes up to `most`. Empty: closed.
  std::vector<Job> take(std::size_t most) {
    std::unique_lock lock{mutex_};
    ready_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
    std::vector<Job> taken;
    while (!closed_ && !jobs_.empty() && taken.size() < most) {
      taken.push_back(std::move(jobs_.front()));
      jobs_.pop_front();
    }
    return taken;
  }
  std::deque<Job> close() {
    const std::lock_guard lock{mutex_};
    closed_ = true;
    ready_.notify_all();
    return std::exchange(jobs_, {});
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Job> jobs_;
  bool closed_ = false;
};

absl::Status guarded(const Store::Work& work, Transaction& tx) {
  try {
    return work(tx);
  } catch (const std::exception& error) {
    return absl::InternalError(cat("transaction threw: ", error.what()));
  }
}

class SqliteStore final : public Store {
 public:
  SqliteStore(std::string path, std::unique_ptr<Connection> writer, std::vector<std::unique_ptr<Connection>> readers, std::string key)
      : path_{std::move(path)}, writer_{std::move(writer)}, readers_{std::move(readers)}, key_{std::move(key)} {
    threads_.emplace_back([this] { write_loop(); });
    for (auto& reader : readers_) threads_.emplace_back([this, &reader] { read_loop(*reader); });
  }

  ~SqliteStore() override {
    for (auto* queue : {&writes_, &reads_}) {
      for (auto& job : queue->close()) job.done(absl::CancelledError("the store is closing"));
    }
    for (auto& thread : threads_) thread.join();
  }

  void write(Work work, Done done) override { submit(writes_, {std::move(work), std::move(done)}); }
  void read(Work work, Done done) override { submit(readers_.empty() ? writes_ : reads_, {std::move(work), std::move(done)}); }

  absl::Status write_and_wait(Work work) override {
    return waited([&](Done done) { write(std::move(work), std::move(done)); });
  }
  absl::Status read_and_wait(Work work) override {
    return waited([&](Done done) { read(std::move(work), std::move(done)); });
  }

  std::string page_token(std::string_view binding, const Cursor& cursor) const override { return make_page_token(key_, binding, cursor); }
  absl::StatusOr<std::optional<Cursor>> parse_page_token(std::string_view binding, std::string_view token) const override {
    return read_page_token(key_, binding, token);
  }

  void ping(Done done) override {
    read([](Transaction& tx) { return tx.count("ping", std::nullopt).status(); }, std::move(done));
  }

 private:
  static void submit(JobQueue& queue, Job job) {
    if (!queue.push(job)) job.done(absl::CancelledError("the store is closing"));
  }

  template <class Start>
  static absl::Status waited(Start start) {
    std::promise<absl::Status> promise;
    start([&promise](absl::Status status) { promise.set_value(std::move(status)); });
    return promise.get_future().get();
  }

  void write_loop() {
    bool roomy = path_.empty();
    while (true) {
      auto group = writes_.take(kMaxGroup);
      if (group.empty()) return;
      const auto results = commit(group);
      for (std::size_t i = 0; i < group.size(); ++i) group[i].done(results[i]);
      if (!std::exchange(roomy, true)) reserve_room(*writer_, path_);  // not before: a start waits for its first write
    }
  }

  /// Runs each job in a savepoint of its own and commits those that went well together. Nobody hears OK before the commit is on the disk.
  std::vector<absl::Status> commit(const std::vector<Job>& group) {
    if (auto begun = writer_->run("BEGIN IMMEDIATE"); !begun.ok()) return std::vector<absl::Status>(group.size(), begun);
    std::vector<absl::Status> results;
    results.reserve(group.size());
    for (const auto& job : group) results.push_back(run_one(job));
    absl::Status committed = writer_->run("COMMIT");
    if (committed.ok()) return results;
    (void)writer_->run("ROLLBACK");
    for (auto& result : results) {
      if (result.ok()) result = committed;
    }
    return results;
  }

  absl::Status run_one(const Job& job) {
    if (auto status = writer_->run("SAVEPOINT job"); !status.ok()) return status;
    SqliteTransaction tx{*writer_};
    absl::Status status = guarded(job.work, tx);
    if (!status.ok()) (void)writer_->run("ROLLBACK TO job");
    if (auto released = writer_->run("RELEASE job"); !released.ok() && status.ok()) status = released;
    return status;
  }

  void read_loop(Connection& connection) {
    while (true) {
      auto jobs = reads_.take(1);
      if (jobs.empty()) return;
      absl::Status status = connection.run("BEGIN");
      if (status.ok()) {
        SqliteTransaction tx{connection};
        status = guarded(jobs.front().work, tx);
        (void)connection.run("COMMIT");
      }
      jobs.front().done(status);
    }
  }

  std::string path_;  // empty: in memory
  std::unique_ptr<Connection> writer_;
  std::vector<std::unique_ptr<Connection>> readers_;
  std::string key_;
  JobQueue writes_;
  JobQueue reads_;
  std::vector<std::thread> threads_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> open_sqlite(const std::string& path) {
  auto writer = Connection::open(path, Connection::Access::kWrite);
  if (!writer.ok()) return writer.status();
  auto key = migrate(**writer);
  if (!key.ok()) return key.status();
  std::vector<std::unique_ptr<Connection>> readers;
  for (std::size_t i = 0; !path.empty() && i < kReaders; ++i) {
    auto reader = Connection::open(path, Connection::Access::kRead);
    if (!reader.ok()) return reader.status();
    readers.push_back(*std::move(reader));
  }
  return std::make_unique<SqliteStore>(path, *std::move(writer), std::move(readers), *std::move(key));
}

}  // namespace openshell::storage
