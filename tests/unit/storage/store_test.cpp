// One suite for every kind of store: in memory and on disk. Another backend joins by adding its URL.
#include "storage/store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <future>
#include <set>
#include <thread>

#include "observability/text.hpp"
#include "storage/sqlite_connection.hpp"
#include "storage/sqlite_room.hpp"

namespace openshell::storage {
namespace {

using testing::HasSubstr;

class Directory {
 public:
  Directory() { EXPECT_NE(::mkdtemp(path_.data()), nullptr); }
  ~Directory() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_ = "/tmp/openshell-store-XXXXXX";
};

Object object(const std::string& name, const std::string& workspace = "default", const std::string& type = "thing") {
  Object out;
  out.type = type;
  out.id = new_uuid();
  out.name = name;
  out.workspace = workspace;
  out.payload = std::string{"payload of \0 ", 13} + name;
  return out;
}

class StoreSuite : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto opened = open_store(std::string{GetParam()} == "memory" ? "sqlite::memory:" : cat("sqlite:", directory_.file("db")));
    ASSERT_TRUE(opened.ok()) << opened.status();
    store_ = *std::move(opened);
  }
  Object made(Object wanted) {
    Object out;
    const auto status = store_->write_and_wait([&](Transaction& tx) {
      auto stored = tx.create(wanted);
      if (stored.ok()) out = *stored;
      return stored.status();
    });
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }
  std::optional<Object> found(const std::string& type, const std::string& id) {
    std::optional<Object> out;
    const auto status = store_->read_and_wait([&](Transaction& tx) {
      auto row = tx.get(type, id);
      if (row.ok()) out = *row;
      return row.status();
    });
    EXPECT_TRUE(status.ok()) << status;
    return out;
  }
  Directory directory_;
  std::unique_ptr<Store> store_;
};

INSTANTIATE_TEST_SUITE_P(Backends, StoreSuite, testing::Values("memory", "disk"));

TEST_P(StoreSuite, WhatIsCreatedIsReadBackWhole) {
  Object wanted = object("one");
  wanted.scope = "scope";
  wanted.version = 7;
  wanted.status = "pending";
  wanted.dedup_key = "a|b|c";
  wanted.hit_count = 3;
  wanted.labels = {{"acme.io/team", "blue"}, {"quote\"d", "it's"}};
  const Object stored = made(wanted);
  EXPECT_EQ(stored.resource_version, 1U);
  EXPECT_GT(stored.created_at_ms, 0);
  const auto read = found("thing", wanted.id);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->payload, wanted.payload);
  EXPECT_EQ(read->labels, wanted.labels);
  EXPECT_EQ(read->scope, wanted.scope);
  EXPECT_EQ(read->version, wanted.version);
  EXPECT_EQ(read->status, wanted.status);
  EXPECT_EQ(read->dedup_key, wanted.dedup_key);
  EXPECT_EQ(read->hit_count, 3);
}

TEST_P(StoreSuite, ATakenIdNameVersionOrKeyNamesItsConstraint) {
  Object first = object("one");
  first.scope = "s";
  first.version = 1;
  first.dedup_key = "k";
  made(first);
  const auto violated = [&](Object again) {
    return violated_constraint(store_->write_and_wait([&](Transaction& tx) { return tx.create(again).status(); }));
  };
  Object same_id = object("two");
  same_id.id = first.id;
  EXPECT_EQ(violated(same_id), "objects_pkey");
  EXPECT_EQ(violated(object("one")), "objects_name_uq");
  Object same_version = object("two");
  same_version.scope = "s";
  same_version.version = 1;
  EXPECT_EQ(violated(same_version), "objects_version_uq");
  Object same_key = object("two");
  same_key.scope = "s";
  same_key.dedup_key = "k";
  EXPECT_EQ(violated(same_key), "objects_dedup_uq");
  EXPECT_EQ(violated(object("one", "elsewhere")), "");
  EXPECT_EQ(violated(object("one", "default", "other")), "");
}

TEST_P(StoreSuite, UpdateComparesAndSwaps) {
  Object row = made(object("one"));
  const Object stale = row;
  row.payload = "second";
  row.labels = {{"a", "b"}};
  Object second;
  ASSERT_TRUE(store_
                  ->write_and_wait([&](Transaction& tx) {
                    auto updated = tx.update(row);
                    if (updated.ok()) second = *updated;
                    return updated.status();
                  })
                  .ok());
  EXPECT_EQ(second.resource_version, 2U);
  EXPECT_EQ(second.created_at_ms, stale.created_at_ms);
  const auto lost = store_->write_and_wait([&](Transaction& tx) { return tx.update(stale).status(); });
  EXPECT_EQ(conflict_version(lost), 2U);
  EXPECT_TRUE(absl::IsAborted(lost));
  Object absent = stale;
  absent.id = new_uuid();
  EXPECT_EQ(conflict_version(store_->write_and_wait([&](Transaction& tx) { return tx.update(absent).status(); })), 0U);
  EXPECT_EQ(found("thing", row.id)->payload, "second");
}

TEST_P(StoreSuite, OfManyRacingWritersExactlyOneWinsEachVersion) {
  const Object start = made(object("counter"));
  constexpr int kThreads = 8;
  constexpr int kRounds = 25;
  std::atomic<int> won = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRounds; ++i) {
        const auto seen = found("thing", start.id);
        if (store_->write_and_wait([&](Transaction& tx) { return tx.update(*seen).status(); }).ok()) ++won;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(found("thing", start.id)->resource_version, 1U + static_cast<std::uint64_t>(won));
  EXPECT_GE(won, kRounds);
}

TEST_P(StoreSuite, EraseIsTrueFalseOrConflict) {
  const Object row = made(object("one"));
  std::vector<bool> results;
  EXPECT_EQ(conflict_version(store_->write_and_wait([&](Transaction& tx) { return tx.erase("thing", row.id, 9).status(); })), 1U);
  ASSERT_TRUE(store_
                  ->write_and_wait([&](Transaction& tx) {
                    results.push_back(*tx.erase("thing", row.id, 1));
                    results.push_back(*tx.erase("thing", row.id, std::nullopt));
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_THAT(results, testing::ElementsAre(true, false));
}

TEST_P(StoreSuite, AFailedTransactionLeavesNothingAndItsNeighboursStay) {
  std::vector<std::future<absl::Status>> ends;
  for (int i = 0; i < 20; ++i) {
    auto promise = std::make_shared<std::promise<absl::Status>>();
    ends.push_back(promise->get_future());
    store_->write(
        [i](Transaction& tx) -> absl::Status {
          if (auto row = tx.create(object(cat("row", i))); !row.ok()) return row.status();
          return i % 2 == 0 ? absl::OkStatus() : absl::FailedPreconditionError("no");
        },
        [promise](absl::Status status) { promise->set_value(std::move(status)); });
  }
  for (std::size_t i = 0; i < ends.size(); ++i) EXPECT_EQ(ends[i].get().ok(), i % 2 == 0);
  std::uint64_t count = 0;
  ASSERT_TRUE(store_
                  ->read_and_wait([&](Transaction& tx) {
                    count = *tx.count("thing", "default");
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(count, 10U);
}

TEST_P(StoreSuite, AThrowingTransactionIsAnErrorAndNothingMore) {
  EXPECT_TRUE(absl::IsInternal(store_->write_and_wait([](Transaction& tx) -> absl::Status {
    (void)tx.create(object("lost"));
    throw std::runtime_error{"mistake"};
  })));
  EXPECT_FALSE(store_
                   ->write_and_wait([](Transaction& tx) -> absl::Status {
                     return (*tx.get_by_name("thing", "default", "lost")) ? absl::OkStatus() : absl::NotFoundError("");
                   })
                   .ok());
}

TEST_P(StoreSuite, TheLastPlaceIsTakenOnce) {
  std::atomic<int> placed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      const auto status =
          store_->write_and_wait([&](Transaction& tx) { return tx.create_if_count_below(object(cat("t", t)), 3).status(); });
      if (status.ok()) ++placed;
      EXPECT_TRUE(status.ok() || absl::IsResourceExhausted(status)) << status;
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(placed, 3);
}

TEST_P(StoreSuite, PutInsertsThenOverwritesByName) {
  Object row = object("settings");
  const auto put = [&] {
    Object out;
    EXPECT_TRUE(store_
                    ->write_and_wait([&](Transaction& tx) {
                      auto stored = tx.put(row);
                      if (stored.ok()) out = *stored;
                      return stored.status();
                    })
                    .ok());
    return out;
  };
  const Object first = put();
  row.id = new_uuid();
  row.payload = "new";
  const Object second = put();
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(second.resource_version, 2U);
  EXPECT_EQ(second.payload, "new");
}

TEST_P(StoreSuite, PagesByCreationThenNameWithoutGapsOrRepeats) {
  std::set<std::string> all;
  for (int i = 0; i < 25; ++i) all.insert(*made(object(cat("n", i % 7, "-", i), i % 2 == 0 ? "a" : "b")).name);
  std::set<std::string> seen;
  ListQuery query;
  query.type = "thing";
  query.limit = 4;
  std::size_t pages = 0;
  do {
    Page page;
    ASSERT_TRUE(store_
                    ->read_and_wait([&](Transaction& tx) {
                      auto got = tx.list(query);
                      if (got.ok()) page = *std::move(got);
                      return got.status();
                    })
                    .ok());
    for (const auto& row : page.objects) EXPECT_TRUE(seen.insert(*row.name).second) << *row.name;
    query.after = page.next;
    if (query.after && pages == 2) query.after->name.clear();  // as a token does that had no room for it
    if (pages == 1) made(object("behind", "a"));               // a row behind the cursor shifts no page
    ++pages;
  } while (query.after);
  seen.erase("behind");  // made within the millisecond of the first rows it sorts before the cursor, else after it
  EXPECT_EQ(seen, all);
  EXPECT_EQ(pages, 7U);
}

TEST_P(StoreSuite, SelectsByLabelsWithAnyKey) {
  Object one = object("one");
  one.labels = {{"acme.io/a.b", "x"}, {"q'uo\"te", "y"}};
  made(one);
  Object two = object("two");
  two.labels = {{"acme.io/a.b", "x"}};
  made(two);
  const auto names = [&](const Labels& selector) {
    std::vector<std::string> out;
    (void)store_->read_and_wait([&](Transaction& tx) {
      ListQuery query;
      query.type = "thing";
      query.selector = selector;
      auto page = tx.list(query);
      EXPECT_TRUE(page.ok()) << page.status();
      for (const auto& row : page->objects) out.push_back(*row.name);
      return absl::OkStatus();
    });
    return out;
  };
  EXPECT_THAT(names({{"acme.io/a.b", "x"}}), testing::ElementsAre("one", "two"));
  EXPECT_THAT(names({{"acme.io/a.b", "x"}, {"q'uo\"te", "y"}}), testing::ElementsAre("one"));
  EXPECT_THAT(names({{"acme.io/a.b", "z"}}), testing::IsEmpty());
}

TEST_P(StoreSuite, RevisionsComeNewestFirst) {
  for (std::int64_t version = 1; version <= 5; ++version) {
    Object revision = object("");
    revision.name.reset();
    revision.scope = "sandbox";
    revision.version = version;
    made(revision);
  }
  std::vector<std::int64_t> versions;
  ListQuery query;
  query.type = "thing";
  query.scope = "sandbox";
  query.order = ListQuery::Order::kVersionDescending;
  query.limit = 2;
  do {
    ASSERT_TRUE(store_
                    ->read_and_wait([&](Transaction& tx) {
                      auto page = tx.list(query);
                      for (const auto& row : page->objects) versions.push_back(*row.version);
                      query.after = page->next;
                      EXPECT_EQ((*tx.latest_version("thing", "sandbox"))->version, 5);
                      EXPECT_EQ((*tx.get_version("thing", "sandbox", 3))->version, 3);
                      return absl::OkStatus();
                    })
                    .ok());
  } while (query.after);
  EXPECT_THAT(versions, testing::ElementsAre(5, 4, 3, 2, 1));
}

TEST_P(StoreSuite, AReadAfterDoneSeesTheWrite) {
  for (int i = 0; i < 50; ++i) {
    const Object row = made(object(cat("r", i)));
    EXPECT_TRUE(found("thing", row.id)) << i;
  }
}

TEST_P(StoreSuite, ClosingAnswersEveryCallOnce) {
  std::atomic<int> answered = 0;
  for (int i = 0; i < 500; ++i) {
    store_->write([i](Transaction& tx) { return tx.create(object(cat("r", i))).status(); }, [&](const absl::Status&) { ++answered; });
  }
  store_.reset();
  EXPECT_EQ(answered, 500);
}

TEST(Store, FilesAreForTheirOwnerOnly) {
  const Directory directory;
  auto store = open_store(cat("sqlite:", directory.file("db")));
  ASSERT_TRUE(store.ok());
  ASSERT_TRUE((*store)->write_and_wait([](Transaction& tx) { return tx.create(object("one")).status(); }).ok());
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat info {};
    ASSERT_EQ(::stat((directory.file("db") + suffix).c_str(), &info), 0) << suffix;
    EXPECT_EQ(info.st_mode & 0777, 0600U) << suffix;
  }
}

TEST(Store, GW_25_WritesAheadAndSyncsEveryCommit) {
  const Directory directory;
  auto connection = Connection::open(directory.file("db"), Connection::Access::kWrite);
  ASSERT_TRUE(connection.ok());
  const auto pragma = [&](const char* name) {
    auto statement = (*connection)->prepare(cat("PRAGMA ", name));
    EXPECT_TRUE(*statement->step());
    return statement->column_text(0);
  };
  EXPECT_EQ(pragma("journal_mode"), "wal");
  EXPECT_EQ(pragma("synchronous"), "2") << "FULL";
}

TEST(Store, OtherSchemesAreRefusedWithoutTheirPassword) {
  const auto status = open_store("postgres://user:hunter2@host/db").status();
  EXPECT_EQ(status.message(), "unsupported database URL scheme: postgres:");
}

TEST(Store, ADatabaseOfAnotherImplementationOrANewerOneIsRefused) {
  const Directory directory;
  const auto prepare = [&](const std::string& name, const char* sql) {
    sqlite3* handle = nullptr;
    EXPECT_EQ(sqlite3_open(directory.file(name).c_str(), &handle), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(handle, sql, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(handle);
  };
  prepare("foreign", "CREATE TABLE _sqlx_migrations (version INTEGER)");
  EXPECT_THAT(std::string{open_store(cat("sqlite:", directory.file("foreign"))).status().message()}, HasSubstr("another implementation"));
  { ASSERT_TRUE(open_store(cat("sqlite:", directory.file("newer"))).ok()); }
  prepare("newer", "INSERT INTO schema_migrations VALUES (99, 'later', 'x', 0)");
  EXPECT_THAT(std::string{open_store(cat("sqlite:", directory.file("newer"))).status().message()}, HasSubstr("newer than this program"));
  { ASSERT_TRUE(open_store(cat("sqlite:", directory.file("changed"))).ok()); }
  prepare("changed", "UPDATE schema_migrations SET checksum = 'x'");
  EXPECT_THAT(std::string{open_store(cat("sqlite:", directory.file("changed"))).status().message()}, HasSubstr("another build"));
}

TEST(Store, PageTokensSurviveAReopenedDatabase) {
  const Directory directory;
  const std::string url = cat("sqlite:", directory.file("db"));
  std::string token;
  { token = (*open_store(url))->page_token("b", {1, "n", "w", "id"}); }
  auto store = open_store(url);
  EXPECT_TRUE((*store)->parse_page_token("b", token).ok());
}

/// A child writes rows and says each that was acknowledged; it is killed in the middle of it.
TEST(Store, GW_25_NothingAcknowledgedIsLostWhenTheProcessIsKilled) {
  const Directory directory;
  const std::string url = cat("sqlite:", directory.file("db"));
  int pipe_ends[2];
  ASSERT_EQ(::pipe(pipe_ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = open_store(url);
    for (int i = 0; store.ok(); ++i) {
      auto status = (*store)->write_and_wait([i](Transaction& tx) { return tx.create(object(cat("row", i))).status(); });
      if (!status.ok() || ::write(pipe_ends[1], &i, sizeof(i)) != sizeof(i)) ::_exit(1);
    }
    ::_exit(2);
  }
  ::close(pipe_ends[1]);
  int last = -1;
  while (last < 40 && ::read(pipe_ends[0], &last, sizeof(last)) == sizeof(last)) {
  }
  ::kill(child, SIGKILL);
  int more = 0;
  while (::read(pipe_ends[0], &more, sizeof(more)) == sizeof(more)) last = more;
  ::close(pipe_ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  auto store = open_store(url);
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_TRUE((*store)
                  ->read_and_wait([&](Transaction& tx) {
                    for (int i = 0; i <= last; ++i) EXPECT_TRUE(*tx.get_by_name("thing", "default", cat("row", i))) << i;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_GE(last, 40);
}

/// A child whose files may not grow any more, as on a disk that somebody else filled, goes on writing.
TEST(Store, WhatHasToBeWrittenIsWrittenOnAFullDisk) {
  const Directory directory;
  const std::string url = cat("sqlite:", directory.file("db"));
  const pid_t child = ::fork();
  if (child == 0) {
    auto store = open_store(url);
    if (!store.ok()) ::_exit(1);
    for (const char* first : {"first", "second"}) {  // the room is made behind the first write, before the second
      if (!(*store)->write_and_wait([first](Transaction& tx) { return tx.create(object(first)).status(); }).ok()) ::_exit(4);
    }
    std::uintmax_t largest = 0;
    for (const char* file : {"db", "db-wal"}) largest = std::max(largest, std::filesystem::file_size(directory.file(file)));
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit full{largest, largest};
    if (::setrlimit(RLIMIT_FSIZE, &full) != 0) ::_exit(2);
    constexpr int kWrites = 300;  // more than the log holds between two checkpoints
    for (int i = 0; i < kWrites; ++i) {
      if (!(*store)->write_and_wait([i](Transaction& tx) { return tx.create(object(cat("row", i))).status(); }).ok()) ::_exit(3);
    }
    store->reset();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
}

/// Zeros behind the log are no frames: whoever finds the files of a killed process finds what was acknowledged.
TEST(Store, RoomInTheLogHidesNothing) {
  const Directory directory;
  const std::string url = cat("sqlite:", directory.file("db"));
  for (int start = 0; start < 2; ++start) {  // the second finds the room in the database, and makes that of its log
    auto store = open_store(url);
    ASSERT_TRUE(store.ok()) << store.status();
    const auto write = [&](const std::string& name) {
      return (*store)->write_and_wait([&](Transaction& tx) { return tx.create(object(name)).status(); });
    };
    ASSERT_EQ(write(cat("first", start)), absl::OkStatus());
    ASSERT_EQ(write(cat("second", start)), absl::OkStatus());  // behind the room
    for (const char* file : {"db", "db-wal"}) EXPECT_GE(std::filesystem::file_size(directory.file(file)), kReservedBytes) << file;
    const Directory copy;
    for (const char* file : {"db", "db-wal"}) std::filesystem::copy_file(directory.file(file), copy.file(file));
    auto found = open_store(cat("sqlite:", copy.file("db")));
    ASSERT_TRUE(found.ok()) << found.status();
    (void)(*found)->read_and_wait([&](Transaction& tx) {
      for (int i = 0; i <= start; ++i) {
        EXPECT_TRUE(*tx.get_by_name("thing", "default", cat("first", i))) << start << i;
        EXPECT_TRUE(*tx.get_by_name("thing", "default", cat("second", i))) << start << i;
      }
      return absl::OkStatus();
    });
  }
}

TEST(Uuid, IsAVersion4InItsCanonicalForm) {
  std::set<std::string> seen;
  for (int i = 0; i < 1000; ++i) {
    const std::string id = new_uuid();
    EXPECT_THAT(id, testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"));
    EXPECT_TRUE(seen.insert(id).second);
  }
}

}  // namespace
}  // namespace openshell::storage
