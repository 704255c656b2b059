// Part of hip_runtime.h here.
#pragma once
#include "hip_runtime.h"
