#include "storage/store.hpp"
